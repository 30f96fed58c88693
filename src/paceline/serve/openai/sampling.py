"""From a request body's fields to `SamplingParams` and the engine's terms of service.

The one idea: what the body leaves out comes from the model's generation config, else from OpenAI's defaults. Every range
is checked by `SamplingParams`; here only names that differ are put right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.engine.request import RequestClass
from paceline.sampling.params import MAX_LOGPROBS, SamplingParams
from paceline.serve.openai.schema import ChatRequest, CommonFields, invalid

COMPLETION_MAX_TOKENS = 16
PRIORITY_OF_TIER = {"priority": -1}


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What the model's authors recommend; None: they do not say."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


def generation_defaults(files: Mapping[str, Path]) -> GenerationDefaults:
    """The defaults from a folder's `generation_config.json`; empty when there is none or it cannot be read."""
    path = files.get("generation_config.json")
    if path is None:
        return GenerationDefaults()
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return GenerationDefaults()
    if not isinstance(config, dict) or config.get("do_sample") is False:
        return GenerationDefaults()
    names = GenerationDefaults.__dataclass_fields__
    return GenerationDefaults(**{name: config[name] for name in names if isinstance(config.get(name), int | float)})


@dataclass(frozen=True, slots=True)
class Terms:
    """How a request wants to be served among others."""

    request_class: RequestClass
    priority: int
    deadline_s: float | None
    cache_salt: str


def terms(body: CommonFields) -> Terms:
    """Class, priority, deadline and salt from `paceline`, `service_tier`, `priority` and `cache_salt`. Errors: RequestError."""
    ours = body.paceline
    is_batch = body.service_tier == "flex"
    request_class: RequestClass = "batch" if is_batch else "interactive"
    if ours is not None and ours.request_class is not None:
        request_class = ours.request_class
    deadline_s = None
    if ours is not None and ours.deadline_ms is not None:
        if not ours.deadline_ms > 0:
            raise invalid(f"`paceline.deadline_ms` is {ours.deadline_ms}; expected more than 0.", "paceline.deadline_ms")
        deadline_s = ours.deadline_ms / 1e3
    priority = body.priority if body.priority is not None else PRIORITY_OF_TIER.get(body.service_tier or "", 0)
    return Terms(request_class, priority, deadline_s, body.cache_salt or "")


def sampling_params(body: CommonFields, defaults: GenerationDefaults, *, logprobs: int | None) -> SamplingParams:
    """The validated sampling of a body. Errors: RequestError naming the field."""
    fields: dict[str, object] = {
        "logprobs": logprobs,
        "max_tokens": _max_tokens(body),
        "stop": (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        "stop_token_ids": tuple(body.stop_token_ids or ()),
    }
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty"):
        fields[name] = _first(getattr(body, name), getattr(defaults, name))
    for name in ("n", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "ignore_eos"):
        fields[name] = getattr(body, name)
    fields["include_stop_str_in_output"] = body.include_stop_str_in_output
    fields["skip_special_tokens"] = body.skip_special_tokens
    known = {name: value for name, value in fields.items() if value is not None}
    return SamplingParams(**known)  # type: ignore[arg-type]  # the schema has checked the types


def chat_logprobs(body: ChatRequest) -> int | None:
    """How many alternatives a chat asks for, None for no logprobs. Errors: RequestError."""
    top = body.top_logprobs
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise invalid(f"`top_logprobs` is {top}; expected 0 to {MAX_LOGPROBS}.", "top_logprobs")
    if top and not body.logprobs:
        raise invalid("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
    return (top or 0) if body.logprobs else None


def _max_tokens(body: CommonFields) -> int | None:
    if not isinstance(body, ChatRequest):
        return COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    asked = [value for value in (body.max_completion_tokens, body.max_tokens) if value is not None]
    if body.max_completion_tokens is not None and body.max_completion_tokens < 1:
        raise invalid(f"`max_completion_tokens` is {body.max_completion_tokens}; expected 1 or more.", "max_completion_tokens")
    return min(asked) if asked else None


def _first(given: float | None, default: float | None) -> float | None:
    return default if given is None else given
