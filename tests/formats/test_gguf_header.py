"""What a broken GGUF header gives: always one ModelError with path, offset and expectation, soon and cheaply."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ModelError
from paceline.formats.gguf import GgufCheckpoint
from paceline.formats.gguf_header import MAX_ALIGNMENT, parse_header
from paceline.formats.mapped_file import MappedFile
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType
from tests.generators.gguf_files import SHAPES, write_sample

HUGE = (1 << 64) - 1
SOME_PATH = Path("broken.gguf")


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def pair(key: str | bytes, value_type: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", value_type) + value


def entry(name: str | bytes = "w", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def header(*, pairs: tuple[bytes, ...] = (), entries: tuple[bytes, ...] = (), data: int = 4096, **counts: int) -> bytes:
    """A file with these raw parts and `data` zero bytes after them; counts may lie."""
    num_tensors, num_pairs = counts.get("num_tensors", len(entries)), counts.get("num_pairs", len(pairs))
    head = struct.pack("<4sIQQ", (counts.get("magic", 0) and b"ggjt") or b"GGUF", counts.get("version", 3), num_tensors, num_pairs)
    head += b"".join(pairs) + b"".join(entries)
    return head + bytes(-len(head) % 32) + bytes(data)


def array(content: bytes) -> bytes:
    return pair("k", 9, content)


def alignment(value: int) -> bytes:
    return pair("general.alignment", 4, struct.pack("<I", value))


BROKEN: dict[str, tuple[bytes, str]] = {
    "wrong magic": (header(magic=1), r"at byte 0: the magic is b'ggjt'; expected b'GGUF'"),
    "version 0": (header(version=0), r"at byte 4: the GGUF version is 0; expected 2 or 3"),
    "version 1": (header(version=1), r"at byte 4: this is GGUF version 1; expected version 2 or 3"),
    "version 4": (header(version=4), r"at byte 4: the GGUF version is 4; expected 2 or 3"),
    "big-endian": (header(version=3 << 24), r"at byte 4: this file is big-endian; expected a little-endian"),
    "huge tensor count": (header(num_tensors=HUGE), rf"at byte 8: the tensor count is {HUGE}; expected at most"),
    "tensor count over the rest": (header(num_tensors=1000), r"at byte 8: the tensor count is 1000; expected at most 124"),
    "huge metadata count": (header(num_pairs=HUGE), rf"at byte 16: the metadata count is {HUGE}; expected at most"),
    "huge key length": (header(pairs=(struct.pack("<Q", HUGE),)), r"at byte 24: the length of a metadata key is \d+; expected at most 4"),
    "empty key": (header(pairs=(pair("", 4, bytes(4)),)), r"at byte 24: a metadata key is empty"),
    "key of bad UTF-8": (header(pairs=(pair(b"\xff", 4, bytes(4)),)), r"at byte 24: a metadata key is not valid UTF-8"),
    "key twice": (header(pairs=(pair("k", 4, bytes(4)),) * 2), r"at byte 41: metadata key `k` appears twice"),
    "value type 13": (header(pairs=(pair("k", 13, b""),)), r"at byte 33: the value type of `k` is 13; expected 0 to 12"),
    "bool of 2": (header(pairs=(pair("k", 7, b"\2"),)), r"at byte 37: the bool `k` holds a byte of 2; expected 0 or 1"),
    "huge string": (header(pairs=(pair("k", 8, struct.pack("<Q", HUGE)),)), r"at byte 37: the length of the value of `k` is \d+; expected"),
    "huge array": (header(pairs=(array(struct.pack("<IQ", 0, HUGE)),)), r"at byte 41: the length of `k` is \d+; expected at most"),
    "array over the rest": (header(pairs=(array(struct.pack("<IQ", 12, 600)),)), r"the length of `k` is 600; expected at most 513"),
    "nested array": (header(pairs=(array(struct.pack("<IQ", 9, 1)),)), r"at byte 37: the element type of `k` is 9; expected a number"),
    "array of unknown type": (header(pairs=(array(struct.pack("<IQ", 77, 1)),)), r"at byte 37: the element type of `k` is 77"),
    "huge string in an array": (
        header(pairs=(array(struct.pack("<IQ", 8, 2) + text("fine") + struct.pack("<Q", HUGE)),)),
        r"at byte 61: string 1 of `k` runs past the file's end",
    ),
    "strings past the end": (header(pairs=(array(struct.pack("<IQ", 8, 2) + text("x" * 39)),), data=0), r"string 1 of `k` runs past"),
    "alignment 0": (header(pairs=(alignment(0),)), r"`general.alignment` is `0`; expected a power of two"),
    "alignment 3": (header(pairs=(alignment(3),)), r"`general.alignment` is `3`; expected a power of two"),
    "alignment 4": (header(pairs=(alignment(4),)), r"`general.alignment` is `4`; expected a power of two from 8"),
    "alignment 2^31": (header(pairs=(alignment(1 << 31),)), r"`general.alignment` is `2147483648`; expected a power of two"),
    "alignment is a string": (header(pairs=(pair("general.alignment", 8, text("32")),)), r"`general.alignment` is `32`; expected a power"),
    "alignment is a bool": (header(pairs=(pair("general.alignment", 7, b"\1"),)), r"`general.alignment` is `True`; expected a power"),
    "no dimensions": (header(entries=(entry(dims=()),)), r"at byte 24: tensor `w` has 0 dimensions; expected 1 to 4"),
    "five dimensions": (header(entries=(entry(dims=(1,) * 5),)), r"at byte 24: tensor `w` has 5 dimensions; expected 1 to 4"),
    "2^32-1 dimensions": (header(entries=(text("w") + b"\xff" * 4,)), r"tensor `w` has 4294967295 dimensions; expected 1 to 4"),
    "a dimension of 0": (header(entries=(entry(dims=(32, 0)),)), r"tensor `w` has dimensions \[32, 0\]; expected each at least 1"),
    "product that wraps to a small number": (header(entries=(entry(dims=(1 << 33, 1 << 31)),)), r"and a product of at most"),
    "product that wraps to zero": (header(entries=(entry(dims=(1 << 32, 1 << 32)),)), r"and a product of at most"),
    "rows of part of a block": (header(entries=(entry(dims=(48,), kind=8),)), r"a row of 48 elements is not a whole number of Q8_0 blocks"),
    "known foreign type": (header(entries=(entry(kind=23),)), r"at byte 45: tensor `w` has type IQ4_XS \(23\); expected one of F32, F16"),
    "unknown type": (header(entries=(entry(kind=9999),)), r"at byte 45: tensor `w` has type unknown \(9999\); expected one of"),
    "offset out of line": (header(entries=(entry(offset=8),)), r"tensor `w` has offset 8; expected a multiple of the alignment 32"),
    "offset past the end": (header(entries=(entry(offset=8192),)), r"at byte 8256: tensor `w` ends at byte 8384, but the file has 4160"),
    "huge offset": (header(entries=(entry(offset=HUGE - 31),)), r"tensor `w` ends at byte \d+, but the file has 4160"),
    "tensor longer than the file": (header(entries=(entry(dims=(1 << 40,)),)), r"tensor `w` ends at byte \d+, but the file has"),
    "overlap": (header(entries=(entry("a"), entry("b", offset=96))), r"tensor `b` overlaps the tensor before it; expected"),
    "tensor twice": (header(entries=(entry("a"), entry("a", offset=128))), r"tensor `a` appears twice"),
    "nameless tensor": (header(entries=(entry(""),)), r"a tensor name is empty"),
    "tensor name too long": (header(entries=(entry("w" * 600),)), r"the length of a tensor name is 600; expected at most 512"),
}  # fmt: skip
"""Name of the fault: the file, and what its error must say."""


@pytest.mark.parametrize("fault", BROKEN)
def test_each_lie_is_refused_where_it_stands(fault: str) -> None:
    content, expected = BROKEN[fault]
    with pytest.raises(ModelError, match=expected) as caught:
        parse_header(content, SOME_PATH)
    assert str(caught.value).startswith("`broken.gguf` at byte ")
    assert len(str(caught.value)) < 500


def test_the_raw_parts_of_these_tests_make_a_sound_file() -> None:
    parsed = parse_header(header(pairs=(alignment(MAX_ALIGNMENT),), entries=(entry(),), data=1 << 17), SOME_PATH)
    assert (parsed.version, parsed.data_start, parsed.tensors["w"].shape) == (3, MAX_ALIGNMENT, (32,))


def test_terminal_codes_of_a_name_are_escaped_in_the_message() -> None:
    with pytest.raises(ModelError, match=r"tensor `\\x1b\[2Jw` has 0 dimensions") as caught:
        parse_header(header(entries=(entry("\x1b[2Jw", dims=()),)), SOME_PATH)
    assert "\x1b" not in str(caught.value)


def read_all(content: bytes) -> None:
    """Parse, and decode every tensor: what an open and a load would do."""
    parsed = parse_header(content, SOME_PATH)
    file = MappedFile(SOME_PATH, np.frombuffer(content, np.uint8), parsed.data_start, parsed.tensors)
    for name, place in parsed.tensors.items():
        assert 0 < place.start <= place.start + place.num_bytes <= len(content)
        assert dequantize(file.tensor(name)).shape == place.shape


def test_every_truncation_of_a_sound_file_is_refused(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    content = path.read_bytes()
    last = max(place.start + place.num_bytes for place in parse_header(content, path).tensors.values())
    begin = time.process_time()
    for length in range(last):
        with pytest.raises(ModelError):
            parse_header(content[:length], path)
    assert time.process_time() - begin < 5.0
    parse_header(content[:last], path)


@pytest.mark.parametrize("length", [0, 3, 23, 24, 700, 1500])
def test_a_truncated_file_on_disk_names_itself(tmp_path: Path, length: int) -> None:
    path = write_sample(tmp_path / "cut.gguf")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError, match=r"cut\.gguf` at byte \d+: "):
        GgufCheckpoint(path)


def test_a_lying_count_costs_no_memory() -> None:
    lies = [content for name, (content, _) in BROKEN.items() if "huge" in name or "longer" in name]
    assert len(lies) >= 7
    tracemalloc.start()
    for content in lies:
        with pytest.raises(ModelError):
            parse_header(content, SOME_PATH)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_sample(tmp_path_factory.mktemp("sample") / "m.gguf").read_bytes()


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_give_a_model_error_or_a_sound_reading(sample: bytes, changes: list[tuple[int, int]]) -> None:
    content = bytearray(sample)
    for place, value in changes:
        content[place % len(content)] = value
    with contextlib.suppress(ModelError):
        read_all(bytes(content))


@settings(max_examples=300, deadline=None)
@given(
    place=st.integers(0, 1 << 30), value=st.sampled_from([0, 1, 0x7F, 0xFF, 1 << 31, 1 << 32, 1 << 63, HUGE]), width=st.sampled_from([4, 8])
)
def test_wild_numbers_give_a_model_error_or_a_sound_reading(sample: bytes, place: int, value: int, width: int) -> None:
    content = bytearray(sample)
    at = place % (len(content) - 8)
    content[at : at + width] = value.to_bytes(8, "little")[:width]
    with contextlib.suppress(ModelError):
        read_all(bytes(content))


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200))
def test_random_bytes_behind_a_sound_preamble_are_refused_or_read(content: bytes) -> None:
    with contextlib.suppress(ModelError):
        read_all(struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + content)


def test_any_bits_in_the_data_decode_without_a_warning(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    data_start = parse_header(bytes(content), path).data_start
    content[data_start:] = b"\xff" * (len(content) - data_start)
    path.write_bytes(content)
    checkpoint = GgufCheckpoint(path)
    for name, (kind, shape) in SHAPES.items():
        assert dequantize(checkpoint.tensor(name)).shape == shape, kind
    assert TensorType.Q4_K in {kind for kind, _ in SHAPES.values()}
