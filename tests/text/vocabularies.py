"""Small vocabularies as GGUF metadata, held in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from paceline.formats.checkpoint import MetaValue, RawTensor
from paceline.text.vocabulary import TokenKind, byte_characters


class MemoryCheckpoint:
    """A checkpoint that is metadata alone, or the files of a folder."""

    def __init__(self, metadata: Mapping[str, MetaValue], files: Mapping[str, Path] | None = None) -> None:
        self.metadata = metadata
        self.files: Mapping[str, Path] = files or {}

    @property
    def path(self) -> Path:
        """A name for messages."""
        return Path("memory.gguf")

    @property
    def kind(self) -> Literal["gguf", "safetensors"]:
        """A folder when it has files."""
        return "safetensors" if self.files else "gguf"

    @property
    def tensor_names(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def tensor(self, name: str) -> RawTensor:
        """Not to be asked for."""
        raise AssertionError(name)

    def digest(self) -> str:
        """A constant."""
        return "memory"


def byte_level_metadata(
    merges: Sequence[str] = (), *, control: Sequence[str] = (), defined: Sequence[str] = (), **entries: MetaValue
) -> dict[str, MetaValue]:
    """All 256 bytes, the merges, then control and user-defined tokens; ids in this order."""
    normal = [*byte_characters(), *(merge.replace(" ", "") for merge in merges)]
    kinds = [TokenKind.NORMAL] * len(normal) + [TokenKind.CONTROL] * len(control) + [TokenKind.USER_DEFINED] * len(defined)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*normal, *control, *defined],
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": list(merges),
        **{f"tokenizer.ggml.{name}": value for name, value in entries.items()},
    }


def sentencepiece_metadata(
    scored: Mapping[str, float], *, control: Sequence[str] = ("<unk>", "<s>", "</s>"), **entries: MetaValue
) -> dict[str, MetaValue]:
    """Control tokens from id 0, then 256 bytes, then scored pieces."""
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [TokenKind.CONTROL] * len(control) + [TokenKind.BYTE] * 256 + [TokenKind.NORMAL] * len(scored)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*control, *byte_pieces, *scored],
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array([0.0] * (len(control) + 256) + list(scored.values()), np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{name}": value for name, value in entries.items()},
    }
