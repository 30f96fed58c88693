"""A body's fields become sampling params: defaults, limits, and nothing dropped in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import RequestError
from paceline.serve.body import decode_body
from paceline.serve.openai.completions import split_prompts
from paceline.serve.openai.sampling import GenerationDefaults, Terms, chat_logprobs, generation_defaults, sampling_params, terms
from paceline.serve.openai.schema import ChatRequest, CompletionRequest, refuse_unbuilt

NO_DEFAULTS = GenerationDefaults()


def chat(**fields: Any) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_body(json.dumps(body).encode(), ChatRequest)[0]


def completion(**fields: Any) -> CompletionRequest:
    return decode_body(json.dumps({"prompt": "hi", **fields}).encode(), CompletionRequest)[0]


def test_the_models_generation_config_stands_in_for_what_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2], "transformers_version": "4"}))
    defaults = generation_defaults({"generation_config.json": path})
    params = sampling_params(chat(top_k=5), defaults, logprobs=None)
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 5, 1.0)


@pytest.mark.parametrize("text", ["{", "[]", '{"do_sample": false, "temperature": 9}', '{"temperature": "hot"}'])
def test_a_generation_config_that_recommends_nothing_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(text)
    assert generation_defaults({"generation_config.json": path}) == NO_DEFAULTS
    assert generation_defaults({}) == NO_DEFAULTS


def test_the_smaller_of_the_two_token_limits_wins() -> None:
    assert sampling_params(chat(max_tokens=5, max_completion_tokens=9), NO_DEFAULTS, logprobs=None).max_tokens == 5
    assert sampling_params(chat(max_tokens=9, max_completion_tokens=5), NO_DEFAULTS, logprobs=None).max_tokens == 5


def test_without_a_limit_a_chat_has_the_context_and_a_completion_sixteen_tokens() -> None:
    assert sampling_params(chat(), NO_DEFAULTS, logprobs=None).max_tokens is None
    assert sampling_params(completion(), NO_DEFAULTS, logprobs=None).max_tokens == 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 10**9}, "n"),
        ({"n": -1}, "n"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"temperature": -1}, "temperature"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": "x" * 10**6}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"1": 200}}, "logit_bias"),
        ({"seed": 2**70}, "seed"),
    ],
)
def test_a_value_out_of_range_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        sampling_params(chat(**fields), NO_DEFAULTS, logprobs=None)
    assert caught.value.param == param


@pytest.mark.parametrize("fields", [{"logprobs": True, "top_logprobs": 21}, {"logprobs": True, "top_logprobs": -1}, {"top_logprobs": 2}])
def test_top_logprobs_out_of_range_or_alone_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        chat_logprobs(chat(**fields))
    assert caught.value.param == "top_logprobs"


def test_chat_logprobs_count_the_alternatives() -> None:
    assert chat_logprobs(chat()) is None
    assert chat_logprobs(chat(logprobs=True)) == 0
    assert chat_logprobs(chat(logprobs=True, top_logprobs=20)) == 20


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Terms("interactive", 0, None, "")),
        ({"service_tier": "flex"}, Terms("batch", 0, None, "")),
        ({"service_tier": "priority"}, Terms("interactive", -1, None, "")),
        ({"service_tier": "priority", "priority": 7, "cache_salt": "s"}, Terms("interactive", 7, None, "s")),
        ({"paceline": {"class": "batch", "deadline_ms": 1500}}, Terms("batch", 0, 1.5, "")),
        ({"service_tier": "flex", "paceline": {"class": "interactive"}}, Terms("interactive", 0, None, "")),
    ],
)
def test_terms_come_from_tier_priority_and_our_own_fields(fields: dict[str, Any], expected: Terms) -> None:
    assert terms(chat(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"echo": True}, "echo"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"chat_template": "x"}, "chat_template"),
        ({"paceline": {"ttft_target_ms": 5}}, "paceline.ttft_target_ms"),
        ({"paceline": {"speculation": {"length": 3}}}, "paceline.speculation"),
    ],
)
def test_what_is_not_built_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        refuse_unbuilt(chat(**fields))
    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "echo": False, "best_of": 1, "length_penalty": 1.0},
        {"tools": None, "use_beam_search": False, "bad_words": [], "modalities": ["text"], "paceline": {"speculation": "auto"}},
    ],
)
def test_fields_that_ask_for_what_is_so_anyway_pass(fields: dict[str, Any]) -> None:
    refuse_unbuilt(chat(**fields))


def test_prompts_come_in_four_forms() -> None:
    assert split_prompts("a") == ["a"]
    assert split_prompts(["a", "b"]) == ["a", "b"]
    assert split_prompts([1, 2]) == [[1, 2]]
    assert split_prompts([[1, 2], [3]]) == [[1, 2], [3]]


@pytest.mark.parametrize("prompt", [[], [[]], [1, "a"], [[1], "a"], [[1], []], [[1], 2]])
def test_empty_and_mixed_prompt_lists_are_refused(prompt: Any) -> None:
    with pytest.raises(RequestError) as caught:
        split_prompts(prompt)
    assert caught.value.param == "prompt"
