"""Open a GGUF model: one file or a set of shards, memory-mapped.

The one idea: opening reads the header alone; a tensor is a view of the map, so a model of any size opens in the time that
its vocabulary takes, and pages come from disk when somebody touches them.

It does not interpret names or metadata, and it does not notice a file that is cut short after it was opened.
Source: GGUF specification, versions 2 and 3 (ggml-org/ggml `docs/gguf.md`); shard names as `gguf-split` writes them.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np

from paceline.errors import ModelError, NotFoundError
from paceline.formats.checkpoint import MetaValue, RawTensor
from paceline.formats.gguf_header import parse_header
from paceline.formats.mapped_file import MappedFile, content_digest, home_of_tensors, map_bytes, shown

MAX_SHARDS = 1024

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class GgufCheckpoint:
    """A GGUF model on disk: the `Checkpoint` of one file or of all shards of a split model."""

    def __init__(self, path: Path) -> None:
        """Open the file, or every shard of the set that it belongs to.

        Errors:  NotFoundError when there is no such file; ModelError when a file is broken, a shard is missing, or shards do
                 not belong together
        """
        paths = shard_paths(path)
        metadatas: list[Mapping[str, MetaValue]] = []
        self._shards: list[MappedFile] = []
        for shard_path in paths:
            data = _map_shard(shard_path, path)
            header = parse_header(data, shard_path)
            metadatas.append(header.metadata)
            self._shards.append(MappedFile(shard_path, np.frombuffer(data, np.uint8), header.data_start, header.tensors))
        _check_split(paths, metadatas)
        self._homes = home_of_tensors(self._shards)
        total = metadatas[0].get("split.tensors.count")
        if len(paths) > 1 and total is not None and total != len(self._homes):
            raise ModelError(f"`split.tensors.count` is {shown(total)}, but the shards hold {len(self._homes)} tensors", path=paths[0])
        self._metadata = MappingProxyType(metadatas[0])

    @property
    def path(self) -> Path:
        """The file, or the first shard."""
        return self._shards[0].path

    @property
    def kind(self) -> Literal["gguf", "safetensors"]:
        """`gguf`."""
        return "gguf"

    @property
    def metadata(self) -> Mapping[str, MetaValue]:
        """The key-values of the file, or of the first shard."""
        return self._metadata

    @property
    def files(self) -> Mapping[str, Path]:
        """Empty: a GGUF model has no side files."""
        return {}

    @property
    def tensor_names(self) -> frozenset[str]:
        """Every tensor of every shard."""
        return frozenset(self._homes)

    def tensor(self, name: str) -> RawTensor:
        """The raw tensor of that name, a view of the file. Errors: ModelError when it is missing."""
        if name not in self._homes:
            raise ModelError(f"there is no tensor {shown(name)} among its {len(self._homes)}", path=self.path)
        return self._homes[name].tensor(name)

    def digest(self) -> str:
        """A hex digest of the headers, the file sizes and sampled bytes of every tensor (see `content_digest`)."""
        return content_digest(self._shards)


def shard_paths(path: Path) -> list[Path]:
    """All files of the model that `path` names a file of, first shard first.

    Errors:  ModelError when the name says an impossible number
    """
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count <= MAX_SHARDS:
        raise ModelError(f"the name says shard {number} of {count}; expected shards 1 to at most {MAX_SHARDS}", path=path)
    return [path.with_name(f"{match['stem']}-{index:05d}-of-{count:05d}.gguf") for index in range(1, count + 1)]


def _map_shard(path: Path, asked: Path) -> mmap.mmap:
    try:
        return map_bytes(path)
    except NotFoundError:
        if path == asked:
            raise
        raise ModelError(f"this shard is missing; `{asked.name}` is one of a set", path=path) from None


def _check_split(paths: Sequence[Path], metadatas: Sequence[Mapping[str, MetaValue]]) -> None:
    """Check what the shards say of themselves against their names."""
    for index, (path, metadata) in enumerate(zip(paths, metadatas, strict=True)):
        count, number = metadata.get("split.count", len(paths)), metadata.get("split.no", index)
        if count != len(paths) and not (count == 0 and len(paths) == 1):
            raise ModelError(
                f"`split.count` is {shown(count)}, but the name says {len(paths)}; expected shards named `…-00001-of-0000N.gguf`",
                path=path,
            )
        if number != index:
            raise ModelError(f"`split.no` is {shown(number)}; expected {index} from the name", path=path)
