"""Parse the header of one safetensors file: where each tensor lies.

The one idea: a header is JSON that somebody else wrote; its length, every type, shape and place are checked against the
file before anything is given out.

It reads float types only (F32, F16, BF16): other types belong to quantisation schemes that the model code does not know.
Source: safetensors format description (huggingface/safetensors README, "Format").
"""

from __future__ import annotations

import json
import mmap
from math import prod
from pathlib import Path

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.formats.mapped_file import TensorEntry, shown
from paceline.formats.types import TensorType

MAX_HEADER_BYTES = 1 << 25
"""Longest header; real ones take about 130 bytes a tensor."""
MAX_DIMS = 8
MAX_DIM = 1 << 48

_LENGTH_BYTES = 8
_TYPES = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}


def parse_header(data: bytes | mmap.mmap, path: Path) -> tuple[dict[str, TensorEntry], int]:
    """The tensors of a whole file by name, and the byte at which their data begins.

    Errors:  ModelError naming `path`, the byte offset and what was expected
    """
    if len(data) < _LENGTH_BYTES:
        raise ModelError(
            f"the file has {len(data)} bytes; expected at least the {_LENGTH_BYTES} of the header's length", path=path, offset=0
        )
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    limit = min(MAX_HEADER_BYTES, len(data) - _LENGTH_BYTES)
    if not 2 <= length <= limit:
        raise ModelError(f"the header's length is {length}; expected 2 to {limit}", path=path, offset=0)
    start = _LENGTH_BYTES + length
    header = parse_json(data[_LENGTH_BYTES:start], path, _LENGTH_BYTES)
    entries = [_entry(name, value, start, path) for name, value in header.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.start, entry.num_bytes))
    _check_places(entries, start, len(data), path)
    return {entry.name: entry for entry in entries}, start


def parse_json(text: bytes, path: Path, offset: int = 0) -> dict[str, MetaValue]:
    """A JSON object without doubled keys.

    Errors:  ModelError when it is anything else
    """
    try:
        parsed = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"this is not sound JSON ({shown(reason)}); expected an object", path=path, offset=offset) from None
    if not isinstance(parsed, dict):
        raise ModelError(f"the JSON is a {type(parsed).__name__}; expected an object", path=path, offset=offset)
    return parsed


def _without_doubles(pairs: list[tuple[str, MetaValue]]) -> dict[str, MetaValue]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise ValueError("an object has the same key twice")
    return parsed


def _entry(name: str, value: MetaValue, data_start: int, path: Path) -> TensorEntry:
    def refuse(what: str, found: object, expected: str) -> ModelError:
        return ModelError(f"{what} of tensor {shown(name)} is {shown(found)}; expected {expected}", path=path, offset=_LENGTH_BYTES)

    if not isinstance(value, dict):
        raise refuse("the entry", value, "an object with `dtype`, `shape` and `data_offsets`")
    dtype, shape, places = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise refuse("the dtype", dtype, "F32, F16 or BF16")
    dims = _integers(shape, MAX_DIM)
    if dims is None or len(dims) > MAX_DIMS:
        raise refuse("the shape", shape, f"at most {MAX_DIMS} integers from 0 to {MAX_DIM}")
    bounds = _integers(places, 1 << 62)
    if bounds is None or len(bounds) != 2 or bounds[0] > bounds[1]:
        raise refuse("`data_offsets`", places, "two integers, begin and end")
    tensor_type = _TYPES[dtype]
    if bounds[1] - bounds[0] != prod(dims) * tensor_type.block_bytes:
        raise refuse("the size", bounds[1] - bounds[0], f"{prod(dims) * tensor_type.block_bytes} bytes for {dtype} of shape {dims}")
    return TensorEntry(name, tensor_type, tuple(dims), data_start + bounds[0], bounds[1] - bounds[0])


def _integers(value: MetaValue, limit: int) -> list[int] | None:
    if not isinstance(value, list):
        return None
    numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= limit]
    return numbers if len(numbers) == len(value) else None


def _check_places(entries: list[TensorEntry], data_start: int, file_bytes: int, path: Path) -> None:
    """The format allows neither holes nor overlaps: each tensor begins where the one before it ends, the last ends the file."""
    expected = data_start
    for entry in entries:
        if entry.start != expected:
            kind = "overlaps the one before it" if entry.start < expected else "leaves a hole before it"
            raise ModelError(f"tensor {shown(entry.name)} {kind}; expected it at byte {expected}", path=path, offset=entry.start)
        expected += entry.num_bytes
    if expected != file_bytes:
        raise ModelError(f"the tensors end at byte {expected}, but the file has {file_bytes}", path=path, offset=min(expected, file_bytes))
