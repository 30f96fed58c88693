"""The match rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.speculative.verify import num_accepted


def test_drafts_are_accepted_up_to_the_first_difference() -> None:
    assert num_accepted([], [5]) == 0
    assert num_accepted([5], [5, 6]) == 1
    assert num_accepted([5, 7, 7], [5, 6, 7, 8]) == 1


def test_a_row_is_missing_when_there_is_no_bonus() -> None:
    with pytest.raises(AssertionError, match="k \\+ 1 rows"):
        num_accepted([5], [5])


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), min_size=7, max_size=7))
def test_what_is_accepted_equals_the_picks(draft: list[int], picks: list[int]) -> None:
    picks = picks[: len(draft) + 1]
    count = num_accepted(draft, picks)
    assert draft[:count] == picks[:count]
    assert count == len(draft) or draft[count] != picks[count]
