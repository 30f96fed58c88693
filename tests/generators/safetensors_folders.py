"""Small safetensors folders, and raw files whose header says whatever a test wants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from paceline.formats.types import TensorType
from tests.generators.blocks import random_tensor

SHAPES: dict[str, tuple[TensorType, tuple[int, ...]]] = {
    "model.embed_tokens.weight": (TensorType.BF16, (6, 4)),
    "model.layers.0.input_layernorm.weight": (TensorType.F32, (4,)),
    "model.layers.0.mlp.up_proj.weight": (TensorType.F16, (5, 4)),
    "model.norm.weight": (TensorType.F32, (4,)),
}


def raw_file(header: object, data: bytes, *, length: int | None = None) -> bytes:
    """The bytes of a file; `header` is JSON-encoded unless it is bytes, `length` may lie about it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def sample_data(seed: int = 1) -> dict[str, bytes]:
    """The bytes of every tensor, from a seed."""
    rng = np.random.default_rng(seed)
    return {name: random_tensor(kind, shape, rng).data.tobytes() for name, (kind, shape) in SHAPES.items()}


def sound_file(names: Sequence[str], contents: Mapping[str, bytes]) -> bytes:
    """A sound file that holds these tensors of `SHAPES`."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name in names:
        kind, shape = SHAPES[name]
        header[name] = {"dtype": kind.name, "shape": shape, "data_offsets": [len(data), len(data) + len(contents[name])]}
        data += contents[name]
    return raw_file(header, data)


def write_folder(folder: Path, seed: int = 1, *, sharded: bool = False) -> Path:
    """A model folder with one weights file, or with two and an index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "rope_scaling": None, "eos_token_id": [1, 2]}))
    (folder / "tokenizer.json").write_text("{}")
    names, contents = list(SHAPES), sample_data(seed)
    if not sharded:
        (folder / "model.safetensors").write_bytes(sound_file(names, contents))
        return folder
    parts = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
    for file_name, part in parts.items():
        (folder / file_name).write_bytes(sound_file(part, contents))
    weight_map = {name: file_name for file_name, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
