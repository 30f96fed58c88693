"""Stop strings are found where a search of the whole text finds them, however the text comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.stop import StopMatch, StopMatcher

patterns = st.lists(st.text("ab", min_size=1, max_size=4).map(str.encode), min_size=1, max_size=4).map(tuple)
streams = st.lists(st.text("abc", max_size=4).map(str.encode), max_size=12)


def first_match(stops: tuple[bytes, ...], data: bytes) -> tuple[int, int] | None:
    """The stop string that ends first, the longest of those: its start and end, by trying everything."""
    ends = [(end, end - len(stop)) for stop in stops for end in range(len(stop), len(data) + 1) if data[end - len(stop) : end] == stop]
    return (min(ends)[1], min(ends)[0]) if ends else None


def fed(matcher: StopMatcher, pieces: list[bytes]) -> tuple[int, int] | None:
    """The first match, as offsets into the whole stream."""
    state, done = matcher.start, 0
    for piece in pieces:
        state, match = matcher.advance(state, piece)
        if match is not None:
            return done + match.start, done + match.end
        done += len(piece)
    return None


@given(patterns, streams)
def test_any_cutting_finds_what_a_search_of_the_whole_finds(stops: tuple[bytes, ...], pieces: list[bytes]) -> None:
    assert fed(StopMatcher(stops), pieces) == first_match(stops, b"".join(pieces))


@given(patterns, streams)
def test_what_is_held_is_the_longest_end_that_begins_a_stop_string(stops: tuple[bytes, ...], pieces: list[bytes]) -> None:
    matcher, data = StopMatcher(stops), b"".join(pieces)
    state, match = matcher.advance(matcher.start, data)
    if match is None:
        begins = [length for length in range(len(data) + 1) if any(stop.startswith(data[len(data) - length :]) for stop in stops)]
        assert matcher.held(state) == max(begins)


@given(patterns, streams, streams)
def test_an_older_state_is_a_rollback(stops: tuple[bytes, ...], kept: list[bytes], rejected: list[bytes]) -> None:
    matcher = StopMatcher(stops)
    state, match = matcher.advance(matcher.start, b"".join(kept))
    if match is None:
        matcher.advance(state, b"".join(rejected))
        assert matcher.advance(state, b"ab") == StopMatcher(stops).advance(state, b"ab")


def test_the_stop_string_that_ends_first_wins_then_the_longest() -> None:
    matcher = StopMatcher((b"abcdef", b"cd", b"bcd"))
    assert matcher.advance(matcher.start, b"xabcdef") == (matcher.start, StopMatch(stop_index=2, start=2, end=5))


def test_a_match_may_begin_in_data_fed_before() -> None:
    matcher = StopMatcher((b"ende",))
    state, match = matcher.advance(matcher.start, b"xen")
    assert match is None
    assert matcher.advance(state, b"dex")[1] == StopMatch(stop_index=0, start=-2, end=2)


def test_without_stop_strings_nothing_is_held() -> None:
    matcher = StopMatcher(())
    assert matcher.advance(matcher.start, b"anything") == ((), None)
    assert matcher.held(matcher.start) == 0


@pytest.mark.timeout(60)
def test_the_worst_pattern_takes_linear_time() -> None:
    # Comparing anew at each byte would take 4 × 10⁹ steps, an hour; the automaton takes two per byte.
    matcher = StopMatcher((b"a" * 4095 + b"b",))
    state, match = matcher.advance(matcher.start, b"a" * 1_000_000)
    assert match is None
    assert matcher.held(state) == 4095
