"""What a lying safetensors header gives: always one ModelError, soon and cheaply."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ModelError
from paceline.formats.safetensors_header import parse_header
from tests.generators.safetensors_folders import SHAPES, raw_file, sample_data, sound_file

SOME_PATH = Path("broken.safetensors")


def with_tensor(dtype: object = "F32", shape: object = (2,), data_offsets: object = (0, 8), data: bytes = bytes(8)) -> bytes:
    return raw_file({"w": {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}}, data)


def two_tensors(begin: int, end: int, num_bytes: int) -> bytes:
    second = {"dtype": "F16", "shape": [(end - begin) // 2], "data_offsets": [begin, end]}
    return raw_file({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": second}, bytes(num_bytes))


BROKEN: dict[str, tuple[bytes, str]] = {
    "shorter than the length": (bytes(7), r"at byte 0: the file has 7 bytes; expected at least the 8"),
    "length 0": (raw_file(b"", b"1234", length=0), r"at byte 0: the header's length is 0; expected 2 to 4"),
    "length over the file": (raw_file({}, b"", length=3), r"at byte 0: the header's length is 3; expected 2 to 2"),
    "length 2^64-1": (raw_file({}, b"", length=(1 << 64) - 1), r"at byte 0: the header's length is 18446744073709551615; expected 2 to 2"),
    "not JSON": (raw_file(b"{,}", b""), r"at byte 8: this is not sound JSON"),
    "not UTF-8": (raw_file(b'{"\xff": 1}', b""), r"at byte 8: this is not sound JSON"),
    "a list": (raw_file([1], b""), r"at byte 8: the JSON is a list; expected an object"),
    "nesting bomb": (raw_file(b"[" * 100_000, b""), r"at byte 8: this is not sound JSON \(`too deeply nested`\)"),
    "tensor twice": (raw_file(b'{"a": {}, "a": {}}', b""), r"an object has the same key twice"),
    "entry is a number": (raw_file({"w": 3}, b""), r"the entry of tensor `w` is `3`; expected an object"),
    "no dtype": (with_tensor(dtype=None), r"the dtype of tensor `w` is `None`; expected F32, F16 or BF16"),
    "dtype F8": (with_tensor(dtype="F8_E4M3"), r"the dtype of tensor `w` is `F8_E4M3`; expected F32, F16 or BF16"),
    "dtype I64": (with_tensor(dtype="I64"), r"the dtype of tensor `w` is `I64`"),
    "dtype a list": (with_tensor(dtype=["F32"]), r"the dtype of tensor `w` is"),
    "shape missing": (with_tensor(shape=None), r"the shape of tensor `w` is `None`; expected at most 8 integers"),
    "shape negative": (with_tensor(shape=[-2]), r"the shape of tensor `w` is `\[-2\]`"),
    "shape fractional": (with_tensor(shape=[2.0]), r"the shape of tensor `w` is `\[2.0\]`"),
    "shape a bool": (with_tensor(shape=[True, 2]), r"the shape of tensor `w` is `\[True, 2\]`"),
    "shape of 9 dims": (with_tensor(shape=[2] + [1] * 8), r"the shape of tensor `w` is"),
    "shape that wraps": (with_tensor(shape=[1 << 32, 1 << 31]), r"the size of tensor `w` is `8`; expected 36893488147419103232 bytes"),
    "offsets of three": (with_tensor(data_offsets=[0, 8, 8]), r"`data_offsets` of tensor `w` is `\[0, 8, 8\]`; expected two integers"),
    "offsets reversed": (with_tensor(data_offsets=[8, 0]), r"`data_offsets` of tensor `w` is `\[8, 0\]`"),
    "offsets negative": (with_tensor(data_offsets=[-8, 0]), r"`data_offsets` of tensor `w` is `\[-8, 0\]`"),
    "offsets huge": (with_tensor(data_offsets=[0, 1 << 64]), r"`data_offsets` of tensor `w` is"),
    "too short for its shape": (with_tensor(data_offsets=[0, 4], data=bytes(4)), r"the size of tensor `w` is `4`; expected 8 bytes"),
    "data cut off": (with_tensor(data=bytes(7)), r"the tensors end at byte \d+, but the file has \d+"),
    "data left over": (with_tensor(data=bytes(9)), r"the tensors end at byte \d+, but the file has \d+"),
    "overlap": (two_tensors(4, 12, 12), r"tensor `b` overlaps the one before it; expected it at byte"),
    "hole": (two_tensors(12, 20, 20), r"tensor `b` leaves a hole before it; expected it at byte"),
    "same place": (two_tensors(0, 8, 8), r"tensor `b` overlaps the one before it"),
}  # fmt: skip
"""Name of the lie: the file, and what its error must say."""


@pytest.mark.parametrize("lie", BROKEN)
def test_each_lie_is_refused(lie: str) -> None:
    content, expected = BROKEN[lie]
    with pytest.raises(ModelError, match=expected) as caught:
        parse_header(content, SOME_PATH)
    assert str(caught.value).startswith("`broken.safetensors` at byte ")
    assert len(str(caught.value)) < 500


def test_an_empty_tensor_lies_between_its_neighbours() -> None:
    tensors, _ = parse_header(two_tensors(8, 8, 8), SOME_PATH)
    assert (tensors["b"].shape, tensors["b"].num_bytes) == ((0,), 0)


@pytest.fixture(scope="module")
def sample() -> bytes:
    return sound_file(list(SHAPES), sample_data())


def test_every_truncation_of_a_sound_file_is_refused(sample: bytes) -> None:
    for length in range(len(sample)):
        with pytest.raises(ModelError):
            parse_header(sample[:length], SOME_PATH)
    assert len(parse_header(sample, SOME_PATH)[0]) == len(SHAPES)


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_give_a_model_error_or_a_sound_reading(sample: bytes, changes: list[tuple[int, int]]) -> None:
    content = bytearray(sample)
    for place, value in changes:
        content[place % len(content)] = value
    with contextlib.suppress(ModelError):
        tensors, start = parse_header(bytes(content), SOME_PATH)
        assert sum(entry.num_bytes for entry in tensors.values()) == len(content) - start
