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
        ({"repetition_penalty": 0.0}, "expected 0.01 to 100"),
        ({"repetition_penalty": 1e-300}, "expected 0.01 to 100"),
        ({"stop_token_ids": tuple(range(1_000_000))}, "expected at most 1024 ids"),
        ({"n": 10**5000}, "is a very large number; expected"),
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


@pytest.mark.parametrize(
    "fields",
    [
        *({"n": True}, {"n": 2.0}, {"n": "2"}, {"temperature": "hot"}, {"top_k": 1.5}, {"seed": "x"}, {"max_tokens": "5"}),
        *({"stop": [1]}, {"stop": [b"a"]}, {"stop": 5}, {"stop_token_ids": 5}, {"stop_token_ids": ["a"]}, {"stop_token_ids": [True]}),
        *({"logit_bias": [1]}, {"logit_bias": {"a": 1}}, {"logit_bias": {1: "x"}}, {"ignore_eos": "yes"}, {"logprobs": True}),
    ],
)
def test_a_value_of_a_wrong_type_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="expected") as caught:
        SamplingParams(**fields)
    assert caught.value.param == next(iter(fields))
    assert len(str(caught.value)) < 200


def test_what_python_callers_pass_is_brought_to_one_form() -> None:
    loose: dict[str, Any] = {"stop": "END", "stop_token_ids": [1, 2], "logit_bias": {3: 1}, "temperature": 0, "top_k": None}
    strict = SamplingParams(stop=("END",), stop_token_ids=(1, 2), logit_bias={3: 1.0}, temperature=0.0)
    assert SamplingParams(**loose) == strict
    nothing: dict[str, Any] = dict.fromkeys(SamplingParams.__struct_fields__)
    assert SamplingParams(**nothing) == SamplingParams()


def test_a_huge_value_is_refused_without_printing_it() -> None:
    bias = dict.fromkeys(range(200_000), 1.0)
    with pytest.raises(RequestError) as caught:
        SamplingParams(logit_bias=bias)
    assert len(str(caught.value)) < 200
