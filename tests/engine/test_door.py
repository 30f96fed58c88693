"""What every door checks and resolves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paceline.engine.door import make_request
from paceline.engine.request import Request
from paceline.errors import ContextLengthError, RequestError
from paceline.sampling.params import SamplingParams
from tests.engine.looped_engine import INFO


def made(prompt: list[int] | None = None, *, max_model_len: int = 100, **fields: Any) -> Request:
    """A request made at the door of an engine with 100 tokens of context and 512 tokens of vocabulary."""
    own = {name: fields.pop(name) for name in list(fields) if name in Request.__struct_fields__}
    return make_request(
        request_id="a",
        prompt_ids=[1, 2, 3] if prompt is None else prompt,
        params=SamplingParams(**fields),
        info=msgspec.structs.replace(INFO, max_model_len=max_model_len),
        eos_ids=(2,),
        now=5.0,
        draw_seed=lambda: 77,
        **own,
    )


def test_seed_and_length_are_resolved() -> None:
    request = made()
    assert (request.params.seed, request.params.max_tokens) == (77, 97)
    assert (request.arrived, request.eos_ids) == (5.0, (2,))
    assert made(seed=0, max_tokens=5).params == SamplingParams(seed=0, max_tokens=5)


def test_stop_strings_become_bytes() -> None:
    assert made(stop=("é", "a")).stop_bytes == ("é".encode(), b"a")


def test_a_top_k_over_the_vocabulary_means_off() -> None:
    assert [made(top_k=top_k).params.top_k for top_k in (5, 512, 513, 10**30)] == [5, 512, 0, 0]


def test_the_whole_context_may_be_used_and_no_more() -> None:
    assert made(list(range(90)), max_tokens=10).params.max_tokens == 10
    with pytest.raises(ContextLengthError, match="holds 100 tokens, but the prompt has 90") as caught:
        made(list(range(90)), max_tokens=11)
    assert (caught.value.num_tokens, caught.value.max_model_len) == (90, 100)


def test_a_prompt_must_leave_room_for_a_token() -> None:
    assert made(list(range(99))).params.max_tokens == 1
    with pytest.raises(ContextLengthError):
        made(list(range(100)))


@pytest.mark.parametrize(
    ("prompt", "fields", "field"),
    [
        ([], {}, "prompt"),
        ([1, 512], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([1], {"stop_token_ids": (512,)}, "stop_token_ids"),
        ([1], {"logit_bias": {-1: 1.0}}, "logit_bias"),
        ([1], {"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ([1], {"deadline_s": 0.0}, "deadline_s"),
        ([1], {"deadline_s": float("nan")}, "deadline_s"),
    ],
)
def test_what_cannot_be_served_names_its_field(prompt: list[int], fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        made(prompt, **fields)
    assert caught.value.param == field
