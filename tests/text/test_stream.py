"""What is sent of an answer is the text before its stop string, whole, and nothing else, however the tokens come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.stop import StopMatcher
from paceline.text.stream import TextStream
from paceline.text.tokenizer import load_tokenizer
from paceline.text.vocabulary import Vocabulary
from tests.text.vocabularies import MemoryCheckpoint, byte_level_metadata

MERGES = ("s t", "st o", "sto p", "Ã ©", "a b")
VOCABULARY = load_tokenizer(MemoryCheckpoint(byte_level_metadata(MERGES, control=("<s>", "stop!")))).vocabulary
LETTERS = [
    VOCABULARY.pieces.index(piece) for piece in ("s", "t", "o", "p", "a", "b", "Ã", "©", "st", "sto", "stop", "Ã©", "ab", "<s>", "stop!")
]

tokens = st.lists(st.sampled_from(LETTERS), max_size=20)
stops = st.lists(st.sampled_from(["s", "sto", "stop", "top", "opa", "é", "ab", "bab", "a\ufffd", "stop!"]), max_size=3, unique=True).map(
    tuple
)


def bytes_of(text: str) -> list[int]:
    """One token for each byte."""
    return [next(i for i in range(256) if VOCABULARY.token_bytes(i) == bytes((byte,))) for byte in text.encode()]


def sent(stream: TextStream, pieces: list[list[int]]) -> list[str]:
    """All deltas."""
    return [*(stream.push(piece) for piece in pieces), stream.finish()]


def expected(vocabulary: Vocabulary, token_ids: list[int], stop: tuple[str, ...], skips: bool, includes: bool) -> str:
    """The whole text, searched and cut as bytes, then decoded at once."""
    data = b"".join(vocabulary.visible_bytes(i, skip_special_tokens=skips) for i in token_ids)
    found = [(data.index(s.encode()) + len(s.encode()), -len(s.encode())) for s in stop if s.encode() in data]
    end = len(data) if not found else min(found)[0] + (0 if includes else min(found)[1])
    return data[:end].decode("utf-8", "replace")


@given(tokens, st.lists(st.integers(1, 4), max_size=20), stops, st.booleans(), st.booleans())
def test_any_cutting_sends_the_whole_text_cut_at_the_first_stop(
    token_ids: list[int], sizes: list[int], stop: tuple[str, ...], skips: bool, includes: bool
) -> None:
    borders = [0, *itertools.accumulate(sizes), len(token_ids)]
    pieces = [token_ids[start:end] for start, end in itertools.pairwise(borders)]
    stream = TextStream(VOCABULARY, stop, skip_special_tokens=skips, include_stop_str_in_output=includes)
    assert "".join(sent(stream, pieces)) == expected(VOCABULARY, token_ids, stop, skips, includes)


@pytest.mark.parametrize("includes", [False, True])
def test_every_way_of_cutting_a_stop_string_leaks_nothing(includes: bool) -> None:
    data = bytes_of("né ENDE und mehr")
    for cuts in itertools.product((False, True), repeat=len(data) - 1):
        if sum(cuts) > 4:
            continue
        borders = [0, *(index + 1 for index, is_cut in enumerate(cuts) if is_cut), len(data)]
        stream = TextStream(VOCABULARY, ("ENDE",), include_stop_str_in_output=includes)
        deltas = sent(stream, [data[start:end] for start, end in itertools.pairwise(borders)])
        assert "".join(deltas) == ("né ENDE" if includes else "né ")
        assert stream.stop_string == "ENDE"


@given(tokens, stops.filter(bool), st.booleans())
def test_engine_and_front_stop_at_the_same_token(token_ids: list[int], stop: tuple[str, ...], skips: bool) -> None:
    matcher, stream = StopMatcher(tuple(s.encode() for s in stop)), TextStream(VOCABULARY, stop, skip_special_tokens=skips)
    state = matcher.start
    for token_id in token_ids:
        state, match = matcher.advance(state, VOCABULARY.visible_bytes(token_id, skip_special_tokens=skips))
        stream.push([token_id])
        assert stream.stop_string == (None if match is None else stop[match.stop_index])
        if match is not None:
            break


def test_a_held_beginning_is_sent_when_it_turns_out_to_be_text() -> None:
    stream = TextStream(VOCABULARY, ("stop!",))
    assert sent(stream, [bytes_of("a sto"), bytes_of("ps"), bytes_of("t")]) == ["a ", "stop", "", "st"]
    assert stream.stop_string is None


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(VOCABULARY, ("b",))
    assert sent(stream, [bytes_of("abc"), bytes_of("d")]) == ["a", "", ""]


def test_text_before_min_tokens_neither_is_nor_begins_a_stop() -> None:
    ids = bytes_of("ababab")
    assert "".join(sent(TextStream(VOCABULARY, ("ab",), min_tokens=3), [ids])) == "abab"
    assert "".join(sent(TextStream(VOCABULARY, ("ab",), min_tokens=2), [ids])) == "ab"
    assert "".join(sent(TextStream(VOCABULARY, ("ab",)), [ids])) == ""


def test_hidden_marks_neither_show_nor_stop() -> None:
    mark = VOCABULARY.pieces.index("stop!")
    assert "".join(sent(TextStream(VOCABULARY, ("stop!",)), [[*bytes_of("a"), mark, *bytes_of("b")]])) == "ab"
    shown = TextStream(VOCABULARY, ("stop!",), skip_special_tokens=False)
    assert "".join(sent(shown, [[*bytes_of("a"), mark, *bytes_of("b")]])) == "a"


def test_half_a_character_before_a_stop_string_shows_as_in_the_whole_text() -> None:
    ids = [*bytes_of("é")[:1], *bytes_of("b")]
    assert "".join(sent(TextStream(VOCABULARY, ("b",)), [[i] for i in ids])) == "\ufffd"
