"""Open a safetensors folder: `config.json`, one `model.safetensors` or the shards of its index, and side files.

The one idea: the folder is one checkpoint like any other; its `metadata` is the parsed `config.json`, and tokenizer and
template files are offered by name for those who can read them.

It does not open pickles, and it follows no file name that leads out of the folder.
Source: transformers' folder layout (`config.json`, `model.safetensors.index.json` with its `weight_map`).
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from paceline.errors import ModelError, NotFoundError
from paceline.formats.checkpoint import MetaValue, RawTensor
from paceline.formats.mapped_file import MappedFile, content_digest, home_of_tensors, map_bytes, shown
from paceline.formats.safetensors_header import parse_header, parse_json

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

SIDE_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
"""Files of a folder, besides weights and `config.json`, that `files` offers."""

MAX_JSON_BYTES = 1 << 25
"""Longest `config.json` or index."""
MAX_SHARDS = 1024


class SafetensorsCheckpoint:
    """A model folder on disk: the `Checkpoint` of its config, weights and side files."""

    def __init__(self, folder: Path) -> None:
        """Open every weights file that the folder's index (or its single file) names.

        Errors:  ModelError when a file is missing or broken, or the index and the files disagree
        """
        self._folder = folder
        self._config = MappingProxyType(_read_json(folder / CONFIG))
        self._side_files = MappingProxyType({name: folder / name for name in SIDE_FILES if (folder / name).is_file()})
        index = folder / INDEX
        self._weights = _open_shards(index) if index.exists() else [_open_weights(folder / SINGLE)]
        self._homes = home_of_tensors(self._weights)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def kind(self) -> Literal["gguf", "safetensors"]:
        """`safetensors`."""
        return "safetensors"

    @property
    def metadata(self) -> Mapping[str, MetaValue]:
        """The parsed `config.json`."""
        return self._config

    @property
    def files(self) -> Mapping[str, Path]:
        """The side files that exist, by name."""
        return self._side_files

    @property
    def tensor_names(self) -> frozenset[str]:
        """Every tensor of every weights file."""
        return frozenset(self._homes)

    def tensor(self, name: str) -> RawTensor:
        """The raw tensor of that name, a view of its file. Errors: ModelError when it is missing."""
        if name not in self._homes:
            raise ModelError(f"there is no tensor {shown(name)} among its {len(self._homes)}", path=self.path)
        return self._homes[name].tensor(name)

    def digest(self) -> str:
        """A hex digest of config, side files, headers, sizes and sampled bytes of every tensor (see `content_digest`)."""
        return content_digest(self._weights, [self._folder / CONFIG, *self._side_files.values()])


def _read_json(path: Path) -> dict[str, MetaValue]:
    data = _map_existing(path)
    if len(data) > MAX_JSON_BYTES:
        raise ModelError(f"the file has {len(data)} bytes; expected at most {MAX_JSON_BYTES}", path=path)
    return parse_json(data[:], path)


def _map_existing(path: Path) -> mmap.mmap:
    try:
        return map_bytes(path)
    except NotFoundError:
        raise ModelError("this file is missing; expected it in a model folder", path=path) from None


def _open_weights(path: Path) -> MappedFile:
    data = _map_existing(path)
    tensors, data_start = parse_header(data, path)
    return MappedFile(path, np.frombuffer(data, np.uint8), data_start, tensors)


def _open_shards(index: Path) -> list[MappedFile]:
    """The shards that an index names, checked against what it says each holds."""
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError("there is no `weight_map`; expected an object of tensor names and file names", path=index)
    expected: dict[str, set[str]] = {}
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(f"tensor {shown(tensor)} is said to be in {shown(name)}; expected a `.safetensors` file here", path=index)
        expected.setdefault(name, set()).add(tensor)
    if len(expected) > MAX_SHARDS:
        raise ModelError(f"the index names {len(expected)} files; expected at most {MAX_SHARDS}", path=index)
    files = [_open_weights(index.with_name(name)) for name in sorted(expected)]
    for file in files:
        differing = sorted(expected[file.path.name] ^ set(file.tensors))
        if differing:
            raise ModelError(f"the index and this file disagree about tensor {shown(differing[0])}", path=file.path)
    return files
