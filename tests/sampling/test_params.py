"""What the one record of sampling refuses, whichever door makes it."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.errors import RequestError
from paceline.sampling.params import MAX_STOP_BYTES, SamplingParams


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 100.5}, "expected 0 to 100"),
        ({"temperature": float("nan")}, "expected 0 to 100"),
        ({"top_p": 0.0}, "expected more than 0, at most 1"),
        ({"repetition_penalty": 0.0}, "expected more than 0, at most 100"),
        ({"stop": ("",)}, "of valid Unicode"),
        ({"stop": ("\ud800",)}, "of valid Unicode"),
        ({"stop": ("é" * (MAX_STOP_BYTES // 2) + "a",)}, f"strings of 1 to {MAX_STOP_BYTES} bytes"),
        ({"logit_bias": {1: float("inf")}}, "values from -100 to 100"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_was_expected(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(RequestError, match=expected) as caught:
        SamplingParams(**fields)
    assert caught.value.param == next(iter(fields))


def test_the_borders_of_every_range_are_inside() -> None:
    SamplingParams(temperature=100.0, top_p=1.0, top_k=-1, min_p=1.0, repetition_penalty=100.0, seed=-(2**63), logprobs=20)
    SamplingParams(temperature=0.0, top_k=10**30, min_p=0.0, seed=2**64 - 1, logprobs=0, stop=("é" * (MAX_STOP_BYTES // 2),))
