"""Parse the header of one GGUF file: metadata and where each tensor lies.

The one idea: nothing is believed. Every count, length and offset is checked against the bytes that are left before
anything is allocated or read, so a lying file costs no more than its own size and ends in one `ModelError`.

It does not open files, join shards or look at tensor data; nested arrays, big-endian files and version 1 are refused.
Strings that are not valid UTF-8 (byte tokens of some vocabularies) keep their bytes as lone surrogates
(`surrogateescape`); keys and tensor names must be valid.
Source: GGUF specification, versions 2 and 3 (ggml-org/ggml `docs/gguf.md`).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.formats.mapped_file import TensorEntry, shown
from paceline.formats.types import TensorType

MAX_KEY_BYTES = 65_535
MAX_NAME_BYTES = 512
MAX_STRING_BYTES = 1 << 26
"""Longest string value; the largest real ones are embedded tokenizer files of some ten megabytes."""
MAX_ARRAY_ITEMS = 1 << 23
MAX_ENTRIES = 1 << 20
"""Most metadata entries, and most tensors, of one file."""
MAX_DIM = 1 << 48
DEFAULT_ALIGNMENT = 32
"""Bytes to whose multiples tensors are aligned when a file does not say."""
MAX_ALIGNMENT = 1 << 16

BOOL, STRING, ARRAY = 7, 8, 9
VALUE_DTYPES = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "<u1", 10: "<u8", 11: "<i8", 12: "<f8"}
"""How a metadata value of each numeric type is stored, by the type's number; a bool is a byte of 0 or 1."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_FOREIGN_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_SHORTEST_ENTRY = 8 + 1 + 4 + 1  # key length, key, value type, value
_SHORTEST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8  # name length, name, n_dims, one dim, type, offset

Bytes = bytes | mmap.mmap


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """One file's header; tensor data begins at `data_start`."""

    version: int
    metadata: dict[str, MetaValue]
    tensors: dict[str, TensorEntry]
    data_start: int


def parse_header(data: Bytes, path: Path) -> GgufHeader:
    """Parse a whole file's header and check that every tensor lies inside the file.

    Errors:  ModelError naming `path`, the byte offset and what was expected
    """
    cursor = _Cursor(data, path)
    version = _preamble(cursor)
    num_tensors = cursor.count("the tensor count", _SHORTEST_TENSOR, MAX_ENTRIES)
    num_entries = cursor.count("the metadata count", _SHORTEST_ENTRY, MAX_ENTRIES)
    metadata: dict[str, MetaValue] = {}
    for _ in range(num_entries):
        at = cursor.offset
        key = cursor.name("a metadata key", MAX_KEY_BYTES)
        if key in metadata:
            cursor.fail(f"metadata key {shown(key)} appears twice", at)
        metadata[key] = _value(cursor, key)
    alignment = _alignment(cursor, metadata)
    entries = [_tensor_entry(cursor) for _ in range(num_tensors)]
    data_start = cursor.offset + -cursor.offset % alignment
    return GgufHeader(version, metadata, _place(cursor, entries, data_start, alignment), data_start)


class _Cursor:
    """Reads little-endian values in order; each read is checked against the bytes that are left."""

    def __init__(self, data: Bytes, path: Path) -> None:
        self.data = data
        self.path = path
        self.size = len(data)
        self.offset = 0

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        raise ModelError(message, path=self.path, offset=self.offset if offset is None else offset)

    def claim(self, num_bytes: int, what: str) -> int:
        """Advance over `num_bytes` and give where they begin."""
        start = self.offset
        if num_bytes > self.size - start:
            self.fail(f"{what} needs {num_bytes} bytes, but the file has {self.size - start} more")
        self.offset = start + num_bytes
        return start

    def u32(self, what: str) -> int:
        number: int = _U32.unpack_from(self.data, self.claim(4, what))[0]
        return number

    def u64(self, what: str) -> int:
        number: int = _U64.unpack_from(self.data, self.claim(8, what))[0]
        return number

    def count(self, what: str, item_bytes: int, limit: int) -> int:
        """A u64 count of things that take at least `item_bytes` each."""
        at = self.offset
        count = self.u64(what)
        fitting = min(limit, (self.size - self.offset) // item_bytes)
        if count > fitting:
            self.fail(f"{what} is {count}; expected at most {fitting}, from the bytes that are left and the limit of {limit}", at)
        return count

    def string(self, what: str, limit: int, errors: str = "surrogateescape") -> str:
        length = self.count(f"the length of {what}", 1, limit)
        start = self.claim(length, what)
        return self.data[start : start + length].decode("utf-8", errors)

    def name(self, what: str, limit: int) -> str:
        at = self.offset
        try:
            name = self.string(what, limit, "strict")
        except UnicodeDecodeError:
            self.fail(f"{what} is not valid UTF-8", at)
        if not name:
            self.fail(f"{what} is empty; expected at least one byte", at)
        return name

    def strings(self, count: int, what: str) -> list[MetaValue]:
        """`count` strings. The hot loop of opening a file (262,144 of them in Gemma), so it keeps everything in locals."""
        data, size, offset, unpack = self.data, self.size, self.offset, _U64.unpack_from
        texts: list[MetaValue] = []
        for _ in range(count):
            start = offset + 8
            end = start + unpack(data, offset)[0] if start <= size else size + 1
            if end > size or end - start > MAX_STRING_BYTES:
                self.fail(f"string {len(texts)} of {what} runs past the file's end or the limit of {MAX_STRING_BYTES} bytes", offset)
            texts.append(data[start:end].decode("utf-8", "surrogateescape"))
            offset = end
        self.offset = offset
        return texts


def _preamble(cursor: _Cursor) -> int:
    at = cursor.claim(4, "the magic")
    magic = cursor.data[at : at + 4]
    if magic != b"GGUF":
        cursor.fail(f"the magic is {magic!r}; expected b'GGUF'", at)
    at = cursor.offset
    version = cursor.u32("the version")
    if version == 1:
        cursor.fail("this is GGUF version 1; expected version 2 or 3 (convert the file again with a current converter)", at)
    if version and not version & 0xFFFF:
        cursor.fail("this file is big-endian; expected a little-endian GGUF", at)
    if version not in (2, 3):
        cursor.fail(f"the GGUF version is {version}; expected 2 or 3", at)
    return version


def _value(cursor: _Cursor, key: str) -> MetaValue:
    at = cursor.offset
    number = cursor.u32(f"the value type of {shown(key)}")
    if number == STRING:
        return cursor.string(f"the value of {shown(key)}", MAX_STRING_BYTES)
    if number == ARRAY:
        return _array(cursor, key)
    if number not in VALUE_DTYPES:
        cursor.fail(f"the value type of {shown(key)} is {number}; expected 0 to 12", at)
    array = _numbers(cursor, number, 1, key)
    scalar: MetaValue = array[0].item()
    return scalar


def _array(cursor: _Cursor, key: str) -> MetaValue:
    at = cursor.offset
    number = cursor.u32(f"the element type of {shown(key)}")
    if number not in VALUE_DTYPES and number != STRING:
        cursor.fail(f"the element type of {shown(key)} is {number}; expected a number, bool or string type (0 to 8, 10 to 12)", at)
    item_bytes = 8 if number == STRING else np.dtype(VALUE_DTYPES[number]).itemsize
    count = cursor.count(f"the length of {shown(key)}", item_bytes, MAX_ARRAY_ITEMS)
    if number == STRING:
        return cursor.strings(count, shown(key))
    return _numbers(cursor, number, count, key)


def _numbers(cursor: _Cursor, number: int, count: int, key: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    dtype = np.dtype(VALUE_DTYPES[number])
    start = cursor.claim(count * dtype.itemsize, f"the value of {shown(key)}")
    # A copy: the file's bytes are unaligned here, and a view would pin the whole map for a few numbers.
    array = np.frombuffer(cursor.data, dtype, count, start).copy()
    if number != BOOL:
        return array
    if array.size and array.max() > 1:
        cursor.fail(f"the bool {shown(key)} holds a byte of {array.max()}; expected 0 or 1", start)
    return array.astype(np.bool_)


def _alignment(cursor: _Cursor, metadata: dict[str, MetaValue]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        cursor.fail(f"`general.alignment` is {shown(alignment)}; expected a power of two from 8 to {MAX_ALIGNMENT}")
    return alignment


def _tensor_entry(cursor: _Cursor) -> TensorEntry:
    """One tensor's entry; its `start` is still relative to the data section."""
    at = cursor.offset
    name = cursor.name("a tensor name", MAX_NAME_BYTES)
    num_dims = cursor.u32(f"the number of dimensions of {shown(name)}")
    if not 1 <= num_dims <= 4:
        cursor.fail(f"tensor {shown(name)} has {num_dims} dimensions; expected 1 to 4", at)
    dims = [cursor.u64(f"a dimension of {shown(name)}") for _ in range(num_dims)]
    if not all(1 <= dim <= MAX_DIM for dim in dims) or prod(dims) > MAX_DIM:
        cursor.fail(f"tensor {shown(name)} has dimensions {dims}; expected each at least 1 and a product of at most {MAX_DIM}", at)
    tensor_type = _tensor_type(cursor, name)
    offset = cursor.u64(f"the offset of {shown(name)}")
    shape = tuple(reversed(dims))
    try:
        return TensorEntry(name, tensor_type, shape, offset, tensor_type.num_bytes(shape))
    except ValueError as error:
        cursor.fail(f"tensor {shown(name)}: {error}", at)


def _tensor_type(cursor: _Cursor, name: str) -> TensorType:
    at = cursor.offset
    number = cursor.u32(f"the type of {shown(name)}")
    try:
        return TensorType(number)
    except ValueError:
        known = ", ".join(member.name for member in TensorType)
        cursor.fail(f"tensor {shown(name)} has type {_FOREIGN_TYPES.get(number, 'unknown')} ({number}); expected one of {known}", at)


def _place(cursor: _Cursor, entries: list[TensorEntry], data_start: int, alignment: int) -> dict[str, TensorEntry]:
    """Turn relative offsets into places in the file, checking alignment, bounds, overlaps and doubled names."""
    placed: dict[str, TensorEntry] = {}
    free_from = 0
    for entry in sorted(entries, key=lambda entry: entry.start):
        start, name = data_start + entry.start, shown(entry.name)
        if entry.start % alignment:
            cursor.fail(f"tensor {name} has offset {entry.start}; expected a multiple of the alignment {alignment}", start)
        if start + entry.num_bytes > cursor.size:
            cursor.fail(f"tensor {name} ends at byte {start + entry.num_bytes}, but the file has {cursor.size}", start)
        if entry.start < free_from:
            cursor.fail(f"tensor {name} overlaps the tensor before it; expected an offset of at least {free_from}", start)
        if entry.name in placed:
            cursor.fail(f"tensor {name} appears twice", start)
        free_from = entry.start + entry.num_bytes
        placed[entry.name] = TensorEntry(entry.name, entry.type, entry.shape, start, entry.num_bytes)
    return placed
