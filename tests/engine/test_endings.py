"""The last token: end tokens, stop tokens, stop strings, the length."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.engine.endings import end_check
from paceline.engine.sequence import Ending
from tests.engine.null_engine import request_of

EOS = 2


def first_ending(tokens: str, **params: Any) -> tuple[int, Ending] | None:
    """How many tokens the sequence has at its end; a token is a letter, `.` is the model's end token."""
    request = request_of("a", eos_ids=(EOS,), **{"max_tokens": 99, **params})
    check = end_check(request, lambda token_id, skips: b"" if token_id == EOS and skips else bytes([token_id]))
    for count, letter in enumerate(tokens, 1):
        if (ending := check(EOS if letter == "." else ord(letter), count)) is not None:
            return count, ending
    return None


@pytest.mark.parametrize(
    ("tokens", "params", "expected"),
    [
        ("ab.c", {}, (3, Ending("stop"))),
        ("ab.c", {"ignore_eos": True}, None),
        ("abc", {"max_tokens": 2}, (2, Ending("length"))),
        ("a.", {"max_tokens": 2}, (2, Ending("stop"))),
        ("abc", {"stop_token_ids": (98,)}, (2, Ending("stop", 98))),
        ("abcd", {"stop": ("bc",)}, (3, Ending("stop", "bc"))),
        ("abcd", {"stop": ("c", "bc")}, (3, Ending("stop", "bc"))),
        ("ab.cd", {"stop": ("bc",), "ignore_eos": True}, (4, Ending("stop", "bc"))),
        ("ababab", {"stop": ("ab",), "min_tokens": 3}, (6, Ending("stop", "ab"))),
        ("abcd", {"stop": ("xy",), "max_tokens": 4}, (4, Ending("length"))),
    ],
)
def test_a_sequence_ends_where_it_should(tokens: str, params: dict[str, Any], expected: tuple[int, Ending] | None) -> None:
    assert first_ending(tokens, **params) == expected
