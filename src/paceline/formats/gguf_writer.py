"""Write a GGUF v3 file: metadata and named tensors, aligned as the specification says by default.

The one idea: one call, everything sized before the first byte is written, and the file appears whole or not at all.

It does not quantise, split, or write big-endian files, and it does not check what the metadata means.
Source: GGUF specification, version 3 (ggml-org/ggml `docs/gguf.md`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import MetaValue
from paceline.formats.gguf_header import ARRAY, BOOL, DEFAULT_ALIGNMENT, STRING, VALUE_DTYPES
from paceline.formats.types import TensorType

RawBytes = bytes | npt.NDArray[np.uint8]
TensorSource = tuple[TensorType, Sequence[int], RawBytes]
"""A tensor to write: its type, its row-major shape (output first) and its bytes."""

WritableValue = MetaValue | np.generic | Sequence[str] | Sequence[int] | Sequence[float]
"""A metadata value to write; see `write_gguf`."""

_VALUE_TYPES = {dtype.removeprefix("<"): number for number, dtype in VALUE_DTYPES.items() if number != BOOL} | {"b1": BOOL}
_INTEGERS = ((0, 1 << 32, "u4"), (-(1 << 31), 1 << 31, "i4"), (0, 1 << 64, "u8"), (-(1 << 63), 1 << 63, "i8"))


def write_gguf(path: Path, metadata: Mapping[str, WritableValue], tensors: Mapping[str, TensorSource]) -> None:
    """Write one GGUF file, replacing `path` only once it is whole.

    Values: bool, str, list[str], int (u32 where it fits, else i32, u64, i64), float (f32), NumPy scalars and arrays
    (their own type), lists of numbers (as the array that NumPy makes of them, with i32 and f32 for i64 and f64).
    Errors: ValueError for a value or a tensor that GGUF cannot say, or bytes that do not fit their shape
    """
    head = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    offset = 0
    for name, (tensor_type, shape, data) in tensors.items():
        if len(data) != tensor_type.num_bytes(shape) or not 1 <= len(shape) <= 4:
            raise ValueError(f"tensor `{name}`: {len(data)} bytes do not fill {tensor_type.name} of shape {tuple(shape)}")
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), tensor_type.value, offset)
        offset += len(data) + _padding(len(data))
    head += b"\0" * _padding(len(head))
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(head)
        for _, _, data in tensors.values():
            file.write(data if isinstance(data, bytes) else data.data)
            file.write(b"\0" * _padding(len(data)))
    os.replace(partial, path)


def _padding(num_bytes: int) -> int:
    return -num_bytes % DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: WritableValue) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(_string(str(item)) for item in value)
    if isinstance(value, np.ndarray | list):
        array = value if isinstance(value, np.ndarray) else _array_of(value)
        return struct.pack("<IIQ", ARRAY, _type_number(array.dtype), array.size) + array.tobytes()
    scalar = value if isinstance(value, np.generic) else _python_scalar(value)
    return struct.pack("<I", _type_number(scalar.dtype)) + scalar.tobytes()


def _array_of(value: Sequence[object]) -> npt.NDArray[np.generic]:
    array = np.array(value)
    narrow = {"i8": "i4", "f8": "f4"}.get(array.dtype.str[1:])
    return array.astype(narrow) if narrow else array


def _python_scalar(value: object) -> np.generic:
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if isinstance(value, int):
        for low, high, dtype in _INTEGERS:
            if low <= value < high:
                scalar: np.generic = np.dtype(dtype).type(value)
                return scalar
    raise ValueError(f"GGUF metadata cannot hold {value!r}")


def _type_number(dtype: np.dtype[np.generic]) -> int:
    if dtype.byteorder == ">" or dtype.str[1:] not in _VALUE_TYPES:
        raise ValueError(f"GGUF metadata cannot hold numbers of type {dtype}")
    return _VALUE_TYPES[dtype.str[1:]]
