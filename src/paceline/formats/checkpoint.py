"""The one face of a checkpoint on disk, whatever its container.

The one idea: bytes stay where they are. A checkpoint is a mapping from tensor names to memory-mapped raw bytes in the
file's own type, plus metadata; nothing is dequantised or copied until somebody asks.

It does not know what the tensors mean: names, permutations and architectures belong to `paceline.models`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from paceline.formats.types import TensorType

MetaValue = bool | int | float | str | list["MetaValue"] | dict[str, "MetaValue"] | npt.NDArray[np.generic] | None
"""A metadata value. GGUF numeric arrays come as NumPy arrays, string arrays as lists of `str`."""


@dataclass(frozen=True, slots=True, eq=False)
class RawTensor:
    """A tensor as its file stores it.

    Shapes:  shape is row-major, output first: a linear layer is (N, K), a norm (E,) (GGUF's dims reversed)
    Layout:  data is the flat uint8 view of the file, rows contiguous, each row a whole number of `type` blocks
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


class Checkpoint(Protocol):
    """A model on disk: metadata, tokenizer files and raw tensors."""

    @property
    def path(self) -> Path:
        """The file (first shard) or folder that was opened."""
        ...

    @property
    def kind(self) -> Literal["gguf", "safetensors"]:
        """Which naming scheme `metadata` and `tensors` follow: GGUF keys, or Hugging Face `config.json` keys."""
        ...

    @property
    def metadata(self) -> Mapping[str, MetaValue]:
        """GGUF key-values (`llama.block_count` …), or the parsed `config.json` of a folder."""
        ...

    @property
    def files(self) -> Mapping[str, Path]:
        """Side files of a folder by name (`tokenizer.json`, `tokenizer_config.json`, `generation_config.json`,
        `chat_template.jinja` …), only those that exist; empty for GGUF."""
        ...

    @property
    def tensor_names(self) -> frozenset[str]:
        """Every tensor that `tensor` can give."""
        ...

    def tensor(self, name: str) -> RawTensor:
        """The raw tensor of that name. Errors: ModelError when it is missing."""
        ...

    def digest(self) -> str:
        """A hex digest that names this model's content (header, sizes, sampled bytes): the key of every cache made from it."""
        ...
