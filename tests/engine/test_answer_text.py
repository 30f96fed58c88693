"""Every front cuts a text at the same place."""

from __future__ import annotations

import pytest

from paceline.engine.answer_text import end_token_places, is_by_token, text_stream
from paceline.engine.messages import Event, Finished, Timings, Tokens
from paceline.engine.request import FinishReason
from paceline.sampling.params import SamplingParams
from paceline.text.vocabulary import Vocabulary

LETTERS = Vocabulary(pieces=("a", "b", "<e>"), kinds=bytes((1, 1, 3)), scheme="byte_level", bos_id=None, eos_ids=(2,), adds_bos=False)


def end_of(name: str, reason: FinishReason, stop_reason: str | int | None = None, index: int = 0) -> Finished:
    return Finished(name, index, reason, stop_reason, 1, 1, Timings(0.0, None, None, 0.0, 0.0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("reason", "stop_reason", "expected"),
    [("stop", None, True), ("stop", 7, True), ("stop", "7", False), ("length", None, False), ("abort", None, False)],
)
def test_only_end_and_stop_tokens_end_a_text_by_a_token(reason: FinishReason, stop_reason: str | int | None, expected: bool) -> None:
    assert is_by_token(end_of("a", reason, stop_reason)) is expected


def test_an_end_token_is_found_in_the_last_event_of_its_own_sequence() -> None:
    events: list[Event] = [
        Tokens("a", 0, [1]),
        Tokens("a", 1, [1]),
        Tokens("b", 0, [2]),
        end_of("a", "stop"),
        end_of("a", "length", index=1),
        Tokens("c", 0, [0]),
        Tokens("c", 0, [2]),
        end_of("c", "stop", 2),
    ]
    assert end_token_places(events) == {0, 6}


def test_a_text_follows_all_params_that_change_it() -> None:
    ids = [0, 1, 0, 2, 1, 0, 1]
    for params, expected in (
        (SamplingParams(), "ababab"),
        (SamplingParams(skip_special_tokens=False), "aba<e>bab"),
        (SamplingParams(stop=("ba",)), "a"),
        (SamplingParams(stop=("ba",), include_stop_str_in_output=True), "aba"),
        (SamplingParams(stop=("ba",), min_tokens=3), "aba"),
    ):
        stream = text_stream(LETTERS, params)
        assert stream.push(ids) + stream.finish() == expected
