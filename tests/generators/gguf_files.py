"""Small GGUF files for tests of the container: a bit of every value type and several tensor types."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.formats.gguf_writer import TensorSource, WritableValue, write_gguf
from paceline.formats.types import TensorType
from tests.generators.blocks import random_tensor

SHAPES: dict[str, tuple[TensorType, tuple[int, ...]]] = {
    "token_embd.weight": (TensorType.Q8_0, (5, 64)),
    "blk.0.attn_q.weight": (TensorType.Q4_K, (3, 256)),
    "blk.0.attn_norm.weight": (TensorType.F32, (7,)),
    "blk.0.experts.weight": (TensorType.BF16, (2, 3, 4)),
    "output.weight": (TensorType.Q4_1, (1, 32)),
}


def sample_metadata() -> dict[str, WritableValue]:
    """A value of every type that GGUF has."""
    return {
        "general.architecture": "llama",
        "general.name": "Kürzel 🚲",
        "a.bool": True,
        "a.u8": np.uint8(200),
        "a.i8": np.int8(-3),
        "a.u16": np.uint16(60_000),
        "a.i16": np.int16(-30_000),
        "a.u32": 4_000_000_000,
        "a.i32": -5,
        "a.u64": 1 << 63,
        "a.i64": -(1 << 62),
        "a.f32": 0.25,
        "a.f64": np.float64(0.1),
        "array.strings": ["", "ein", "\udcff\udcfe", "語"],
        "array.i32": [3, -1, 4],
        "array.f32": [0.5, 1.5],
        "array.bool": np.array([True, False, True]),
        "array.u16": np.array([1, 65_535], np.uint16),
        "array.empty": np.array([], np.int32),
    }


def sample_tensors(seed: int = 1) -> dict[str, TensorSource]:
    """Tensors of several types and ranks, filled from a seed."""
    rng = np.random.default_rng(seed)
    return {name: (kind, shape, random_tensor(kind, shape, rng).data) for name, (kind, shape) in SHAPES.items()}


def write_sample(path: Path, seed: int = 1) -> Path:
    """A GGUF file of about two kilobytes."""
    write_gguf(path, sample_metadata(), sample_tensors(seed))
    return path


def write_split_sample(folder: Path, stem: str = "model") -> list[Path]:
    """The same model in two shards; the first one has all metadata."""
    tensors = list(sample_tensors().items())
    parts = (dict(tensors[:2]), dict(tensors[2:]))
    paths = [folder / f"{stem}-{number:05d}-of-00002.gguf" for number in (1, 2)]
    for number, (path, part) in enumerate(zip(paths, parts, strict=True)):
        split: dict[str, WritableValue] = {
            "split.no": np.uint16(number),
            "split.count": np.uint16(2),
            "split.tensors.count": np.int32(len(tensors)),
        }
        write_gguf(path, {**sample_metadata(), **split} if number == 0 else split, part)
    return paths
