"""Open a GGUF model: one file or a set of shards, memory-mapped.

The one idea: opening reads the header alone; a tensor is a view of the map, so a model of any size opens in the time that
its vocabulary takes, and pages come from disk when somebody touches them.

It does not interpret names or metadata, and it does not notice a file that is cut short after it was opened.
Source: GGUF specification, versions 2 and 3 (ggml-org/ggml `docs/gguf.md`); shard names as `gguf-split` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue, RawTensor
from paceline.formats.content import Sampled, content_digest, map_file
from paceline.formats.gguf_header import GgufHeader, TensorEntry, parse_header

MAX_SHARDS = 1024

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class _Shard:
    path: Path
    bytes: npt.NDArray[np.uint8]
    header: GgufHeader


class GgufCheckpoint:
    """A GGUF model on disk: the `Checkpoint` of one file or of all shards of a split model."""

    kind: Literal["gguf"] = "gguf"

    def __init__(self, path: Path) -> None:
        """Open the file, or every shard of the set that it belongs to.

        Errors:  ModelError when a file is broken, a shard is missing, or shards do not belong together
        """
        self._shards = [_open_shard(shard) for shard in shard_paths(path)]
        _check_split(self._shards)
        self._places: dict[str, tuple[_Shard, TensorEntry]] = {}
        for shard in self._shards:
            for name, entry in shard.header.tensors.items():
                if name in self._places:
                    raise ModelError(f"tensor `{name}` is also in `{self._places[name][0].path}`", path=shard.path, offset=entry.start)
                self._places[name] = (shard, entry)
        self._metadata = MappingProxyType(self._shards[0].header.metadata)

    @property
    def path(self) -> Path:
        """The file, or the first shard."""
        return self._shards[0].path

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
        return frozenset(self._places)

    def tensor(self, name: str) -> RawTensor:
        """The raw tensor of that name, a view of the file. Errors: ModelError when it is missing."""
        if name not in self._places:
            raise ModelError(f"there is no tensor `{name}` among its {len(self._places)}", path=self.path)
        shard, entry = self._places[name]
        return RawTensor(name, entry.type, entry.shape, shard.bytes[entry.start : entry.start + entry.num_bytes])

    def digest(self) -> str:
        """A hex digest of the headers, the file sizes and sampled bytes of every tensor (see `content.content_digest`)."""
        return content_digest(_sampled(shard) for shard in self._shards)


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


def _open_shard(path: Path) -> _Shard:
    mapped = map_file(path)
    return _Shard(path, np.frombuffer(mapped, np.uint8), parse_header(mapped, path))


def _sampled(shard: _Shard) -> Sampled:
    regions = [(entry.start, entry.num_bytes) for entry in shard.header.tensors.values()]
    return Sampled(shard.path, len(shard.bytes), shard.header.data_start, regions)


def _check_split(shards: list[_Shard]) -> None:
    """Check what the shards say of themselves against their names and each other."""
    for index, shard in enumerate(shards):
        count = shard.header.metadata.get("split.count", 1)
        if count != len(shards) and not (count == 0 and len(shards) == 1):
            expected = f"a name like `{shard.path.stem}-00001-of-{count:05d}.gguf`" if isinstance(count, int) else "a number"
            raise ModelError(f"`split.count` is {count}, but {len(shards)} came by name; expected {expected}", path=shard.path)
        number = shard.header.metadata.get("split.no", 0)
        if number != index:
            raise ModelError(f"`split.no` is {number}; expected {index} by the file's name", path=shard.path)
    total = shards[0].header.metadata.get("split.tensors.count")
    present = sum(len(shard.header.tensors) for shard in shards)
    if len(shards) > 1 and total is not None and total != present:
        raise ModelError(f"`split.tensors.count` is {total}, but the shards hold {present} tensors", path=shards[0].path)
