"""Independent tokenizers to compare with: the SentencePiece library, and `transformers`' own reading of a GGUF file."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.text.vocabulary import SPACE_MARK, TokenKind, Vocabulary

BPE_MODEL = 2


class SentencePieceOracle:
    """The SentencePiece library's BPE over the same pieces, scores and kinds.

    Source:  sentencepiece_model.proto, written by hand below
    """

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], *, unknown_id: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor()
        pieces = b"".join(_bytes_field(1, _piece(vocabulary, token_id, float(score), unknown_id)) for token_id, score in enumerate(scores))
        trainer = _number_field(3, BPE_MODEL) + _number_field(35, TokenKind.BYTE in vocabulary.kinds) + _number_field(40, unknown_id)
        normalizer = _bytes_field(1, b"identity") + b"".join(
            _number_field(field, flag) for field, flag in ((3, vocabulary.space_prefix != "never"), (4, False), (5, True))
        )
        self._processor.LoadFromSerializedProto(pieces + _bytes_field(2, trainer) + _bytes_field(3, normalizer))

    def encode(self, text: str) -> list[int]:
        """The ids of plain text."""
        ids: list[int] = self._processor.EncodeAsIds(text)
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """The text of ids."""
        text: str = self._processor.DecodeIds(token_ids)
        return text


def _piece(vocabulary: Vocabulary, token_id: int, score: float, unknown_id: int) -> bytes:
    kind = TokenKind.UNKNOWN if token_id == unknown_id else vocabulary.kinds[token_id]
    # GGUF spells user-defined pieces as text, SentencePiece with its own space.
    piece = vocabulary.pieces[token_id].replace(" ", SPACE_MARK)
    return _bytes_field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number_field(3, kind)


def _bytes_field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _number_field(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def transformers_encoder(path: Path) -> Any:
    """The `tokenizers` pipeline that `transformers` builds from a GGUF file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer
