"""What the writer refuses, and that a file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.formats.gguf import GgufCheckpoint
from paceline.formats.gguf_writer import TensorSource, WritableValue, write_gguf
from paceline.formats.types import TensorType


@pytest.mark.parametrize(
    ("value", "stored"),
    [(0, np.uint32), ((1 << 32) - 1, np.uint32), (1 << 32, np.uint64), (-1, np.int32), (-(1 << 31) - 1, np.int64)],
)
def test_integers_take_the_narrowest_usual_type(tmp_path: Path, value: int, stored: type[np.generic]) -> None:
    write_gguf(tmp_path / "plain.gguf", {"k": value}, {})
    write_gguf(tmp_path / "typed.gguf", {"k": stored(value)}, {})
    assert (tmp_path / "plain.gguf").read_bytes() == (tmp_path / "typed.gguf").read_bytes()
    assert GgufCheckpoint(tmp_path / "plain.gguf").metadata["k"] == value


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, None, {"a": 1}, np.float16(1.0), np.array([1.0], ">f4")])
def test_a_value_that_gguf_cannot_hold_is_refused(tmp_path: Path, value: WritableValue) -> None:
    with pytest.raises(ValueError, match="GGUF metadata cannot hold"):
        write_gguf(tmp_path / "m.gguf", {"k": value}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "source",
    [
        (TensorType.F32, (3,), bytes(11)),
        (TensorType.F32, (1, 1, 1, 1, 1), bytes(4)),
        (TensorType.F32, (), bytes(4)),
        (TensorType.Q8_0, (31,), bytes(34)),
    ],
    ids=["short", "five dims", "no dims", "part of a block"],
)
def test_bytes_that_do_not_fit_their_shape_are_refused(tmp_path: Path, source: TensorSource) -> None:
    with pytest.raises(ValueError, match=r"do not fill|not a whole number"):
        write_gguf(tmp_path / "m.gguf", {}, {"w": source})
    assert list(tmp_path.iterdir()) == []


def test_the_last_write_wins_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for value in (1, 2):
        write_gguf(path, {"k": value}, {})
    assert GgufCheckpoint(path).metadata["k"] == 2
    assert list(tmp_path.iterdir()) == [path]
