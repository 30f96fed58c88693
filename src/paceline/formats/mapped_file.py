"""A weights file as both containers see it: a read-only map, and where each tensor lies in it.

The one idea: a tensor is a view of the map. And a digest that must not read the whole file hashes what tells models apart:
the header whole, every size, and a few bytes of every tensor, spread over it.

The digest does not prove integrity: a flipped bit between samples goes unseen (that is what SHA-256 at download is for).
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelError, NotFoundError
from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType

SAMPLES = 3
"""Places of a tensor that are hashed: its beginning, middle and end."""
SAMPLE_BYTES = 512
MAX_HASHED_HEADER_BYTES = 1 << 26
"""Bytes of a header (or side file) that are hashed at most; real ones stay under 20 MB."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: `start` and `num_bytes` in its file, `shape` row-major."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """A weights file: its bytes, the length of its header and its tensors by name."""

    path: Path
    data: npt.NDArray[np.uint8]
    header_bytes: int
    tensors: Mapping[str, TensorEntry]

    def tensor(self, name: str) -> RawTensor:
        """The raw tensor of that name, a view. Errors: KeyError when it is missing."""
        entry = self.tensors[name]
        return RawTensor(name, entry.type, entry.shape, self.data[entry.start : entry.start + entry.num_bytes])


def map_bytes(path: Path) -> mmap.mmap:
    """The whole file as a read-only map.

    Errors:  NotFoundError when there is no such file; ModelError when it is empty or cannot be read
    """
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise NotFoundError(f"There is no file `{path}`.", param="model") from None
    except ValueError:
        raise ModelError("the file is empty; expected a model", path=path, offset=0) from None
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror}); expected a readable file", path=path) from None


def home_of_tensors(files: Iterable[MappedFile]) -> dict[str, MappedFile]:
    """Which file holds each tensor. Errors: ModelError when two files hold one name."""
    homes: dict[str, MappedFile] = {}
    for file in files:
        for name, entry in file.tensors.items():
            if name in homes:
                raise ModelError(f"tensor {shown(name)} is also in `{homes[name].path}`", path=file.path, offset=entry.start)
            homes[name] = file
    return homes


def shown(value: object) -> str:
    """A value out of a file as a message may show it: escaped, in backticks, never long."""
    text = str(value)
    return "`" + (text if len(text) <= 80 else text[:77] + "...").encode("unicode_escape").decode("ascii") + "`"


def content_digest(files: Iterable[MappedFile], side_files: Iterable[Path] = ()) -> str:
    """Hash side files whole, and of weights files the header, the size and samples of every tensor.

    It reads by `pread`, not through the map: a thousand page faults cost ten times as much as a thousand small reads.

    Units:   32 hex characters of BLAKE2b; about 2 ms for 300 tensors plus 1 ms per megabyte of header
    Errors:  ModelError when a file is not as it was when it was opened
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for path in side_files:
            digest.update(path.name.encode())
            _digest_head(digest, path, MAX_HASHED_HEADER_BYTES)
        for file in files:
            _digest_weights(digest, file)
    except OSError as error:
        raise ModelError(f"cannot be read any more ({error.strerror})", path=error.filename) from None
    return digest.hexdigest()


def _digest_head(digest: hashlib.blake2b, path: Path, limit: int) -> None:
    with path.open("rb") as file:
        digest.update(os.fstat(file.fileno()).st_size.to_bytes(8, "little"))
        digest.update(file.read(limit))


def _digest_weights(digest: hashlib.blake2b, file: MappedFile) -> None:
    with file.path.open("rb", buffering=0) as opened:
        descriptor = opened.fileno()
        if os.fstat(descriptor).st_size != len(file.data):
            raise ModelError(f"the file changed after it was opened; expected {len(file.data)} bytes", path=file.path)
        digest.update(len(file.data).to_bytes(8, "little"))
        digest.update(os.pread(descriptor, min(file.header_bytes, MAX_HASHED_HEADER_BYTES), 0))
        for entry in file.tensors.values():
            if entry.num_bytes <= SAMPLES * SAMPLE_BYTES:
                digest.update(os.pread(descriptor, entry.num_bytes, entry.start))
                continue
            stride = (entry.num_bytes - SAMPLE_BYTES) // (SAMPLES - 1)
            for index in range(SAMPLES):
                digest.update(os.pread(descriptor, SAMPLE_BYTES, entry.start + index * stride))
