"""Typed, bounded reads of metadata."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.models.fields import Fields


def fields(value: MetaValue) -> Fields:
    """One key `a.x` with this value."""
    return Fields({"a.x": value}, Path("m.gguf"), "a.")


@pytest.mark.parametrize("value", [0, 11, 1.0, True, "5", float("nan"), [1, 2], [], {"y": 1}])
def test_integer_refuses_what_is_not_a_whole_number_in_range(value: MetaValue) -> None:
    with pytest.raises(ModelError, match=r"`a\.x` .*expected a whole number from 1 to 10"):
        fields(value).integer("x", 1, 10)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None])
def test_number_refuses_what_is_not_a_finite_number_in_range(value: MetaValue) -> None:
    with pytest.raises(ModelError, match=r"`m\.gguf`: `a\.x` .*expected a number from 0 to 1"):
        fields(value).number("x", 0.0, 1.0)


def test_missing_value_is_called_missing() -> None:
    with pytest.raises(ModelError, match="is missing; expected a string"):
        fields(None).text("x")


def test_list_of_equal_numbers_is_that_number() -> None:
    assert fields([3, 3, 3]).integer("x", 1, 10) == 3
    assert fields(np.array([3, 3], np.int32)).integer("x", 1, 10) == 3


def test_null_takes_the_default() -> None:
    assert fields(None).integer("x", 1, 10, 4) == 4
    assert fields(None).flag("x", True)


def test_table_reads_below_and_keeps_the_path() -> None:
    inner = fields({"y": 2}).table("x")
    assert inner is not None
    assert (inner.integer("y", 0, 9), inner.path) == (2, Path("m.gguf"))


@pytest.mark.parametrize("value", [1, "x", [1]])
def test_table_refuses_what_is_not_an_object(value: MetaValue) -> None:
    with pytest.raises(ModelError, match="expected an object"):
        fields(value).table("x")


def test_huge_value_is_not_repeated_in_full() -> None:
    with pytest.raises(ModelError) as caught:
        fields("z" * 100_000).integer("x", 1, 10)
    assert len(str(caught.value)) < 300
