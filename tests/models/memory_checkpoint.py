"""A checkpoint in memory, changed at will: what model tests read in place of broken files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue, RawTensor
from paceline.formats.types import TensorType
from tests.generators.tiny_models import TinyModel, float_weights, gguf_metadata, gguf_weights


@dataclass(frozen=True, slots=True)
class MemoryCheckpoint:
    """Metadata and tensors, as a container would give them."""

    kind: Literal["gguf", "safetensors"]
    metadata: Mapping[str, MetaValue]
    tensors: Mapping[str, RawTensor]
    path: Path = Path("tiny.model")
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def tensor_names(self) -> frozenset[str]:
        """Every tensor."""
        return frozenset(self.tensors)

    def tensor(self, name: str) -> RawTensor:
        """One tensor."""
        if name not in self.tensors:
            raise ModelError(f"no tensor `{name}`")
        return self.tensors[name]

    def digest(self) -> str:
        """Always the same."""
        return "tiny"

    def having(self, **metadata: MetaValue) -> MemoryCheckpoint:
        """The same with other metadata; None takes a key away. `__` stands for the dot of a key."""
        changed = {**self.metadata, **{key.replace("__", "."): value for key, value in metadata.items()}}
        return replace(self, metadata={key: value for key, value in changed.items() if value is not None})

    def without(self, name: str) -> MemoryCheckpoint:
        """The same with one tensor missing."""
        return replace(self, tensors={key: value for key, value in self.tensors.items() if key != name})

    def with_tensor(self, tensor: RawTensor) -> MemoryCheckpoint:
        """The same with one tensor added or replaced."""
        return replace(self, tensors={**self.tensors, tensor.name: tensor})


def float_tensor(name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> RawTensor:
    """A float32 tensor as a file stores it."""
    return RawTensor(name, TensorType.F32, values.shape, np.ascontiguousarray(values).view(np.uint8).reshape(-1))


def gguf_checkpoint(tiny: TinyModel) -> MemoryCheckpoint:
    """What a GGUF file of a tiny model says."""
    metadata: dict[str, MetaValue] = {
        key: value for key, value in gguf_metadata(tiny).items() if isinstance(value, bool | int | float | str)
    }
    return MemoryCheckpoint("gguf", metadata, {name: float_tensor(name, values) for name, values in gguf_weights(tiny).items()})


def folder_checkpoint(tiny: TinyModel, config: Mapping[str, MetaValue], root: str = "") -> MemoryCheckpoint:
    """What a folder of a tiny model says, with this `config.json`; `root` moves the tensors as multimodal folders do."""
    tensors = {name.replace("model.", root or "model.", 1): values for name, values in float_weights(tiny).items()}
    return MemoryCheckpoint("safetensors", config, {name: float_tensor(name, values) for name, values in tensors.items()})
