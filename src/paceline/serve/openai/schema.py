"""What the OpenAI-shaped routes accept, as records; and which of it is recognised but not built yet.

The one idea: a field that means something here is either honoured or refused. Only a field that nobody here knows is
ignored, and then named in the answer's `warnings`. Ranges are `SamplingParams`' to check; this module knows shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from paceline.errors import RequestError

Bounded = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Json = Any
"""A JSON value of a field that is only looked at to refuse it."""


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`stream_options`."""

    include_usage: bool | None = None


class PacelineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Our own fields, under `paceline`."""

    request_class: Literal["interactive", "batch"] | None = msgspec.field(name="class", default=None)
    deadline_ms: float | None = None
    ttft_target_ms: float | None = None
    tpot_target_ms: float | None = None
    speculation: Json = None


class CommonFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that chat completions and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    bad_words: Json = None
    echo: bool | None = None
    prompt_logprobs: int | None = None
    structured_outputs: Json = None
    response_format: Json = None
    service_tier: Literal["auto", "default", "priority", "flex"] | None = None
    priority: Bounded | None = None
    cache_salt: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    user: Json = None
    metadata: Json = None
    store: Json = None
    paceline: PacelineOptions | None = None


class ChatRequest(CommonFields, frozen=True, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    messages: list[dict[str, Json]]
    """Checked by `text.messages`, which knows what templates read."""
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Json = None
    tool_choice: Json = None
    functions: Json = None
    function_call: Json = None
    parallel_tool_calls: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template: Json = None
    chat_template_kwargs: dict[str, Json] | None = None
    modalities: list[str] | None = None
    audio: Json = None
    web_search_options: Json = None


class CompletionRequest(CommonFields, frozen=True, kw_only=True):
    """The body of `POST /v1/completions`."""

    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    logprobs: int | None = None


def _is_asked(value: Json) -> bool:
    return bool(value)


NOT_BUILT: tuple[tuple[str, Callable[[Json], bool]], ...] = (
    ("use_beam_search", _is_asked),
    ("length_penalty", lambda value: value not in (None, 1.0)),
    ("bad_words", _is_asked),
    ("echo", _is_asked),
    ("prompt_logprobs", lambda value: value is not None),
    ("structured_outputs", _is_asked),
    ("response_format", lambda value: value is not None and value != {"type": "text"}),
    ("suffix", _is_asked),
    ("tools", _is_asked),
    ("tool_choice", lambda value: value not in (None, "none", "auto")),
    ("functions", _is_asked),
    ("function_call", lambda value: value not in (None, "none", "auto")),
    ("chat_template", _is_asked),
    ("modalities", lambda value: value not in (None, [], ["text"])),
    ("audio", _is_asked),
    ("web_search_options", lambda value: value is not None),
)
"""Fields that mean something to other servers, and when a request asks for that."""


def refuse_unbuilt(body: CommonFields) -> None:
    """Refuse what is recognised but not built. Errors: RequestError naming the field."""
    for name, is_asked in NOT_BUILT:
        if is_asked(getattr(body, name, None)):
            raise unsupported(name)
    if body.best_of is not None and body.best_of != (body.n or 1):
        if body.best_of < (body.n or 1):
            raise invalid(f"`best_of` is {body.best_of}; expected at least `n`.", "best_of")
        raise unsupported("best_of")
    ours = body.paceline
    if ours is not None:
        if ours.ttft_target_ms is not None or ours.tpot_target_ms is not None:
            raise unsupported("paceline.ttft_target_ms" if ours.ttft_target_ms is not None else "paceline.tpot_target_ms")
        if ours.speculation not in (None, "auto", "off"):
            raise unsupported("paceline.speculation")


def unsupported(param: str) -> RequestError:
    """The error for a field that is recognised but not built."""
    return RequestError(f"`{param}` is not supported yet.", param=param, code="unsupported_parameter")


def invalid(message: str, param: str) -> RequestError:
    """The error for a value that cannot be served."""
    return RequestError(message, param=param, code="invalid_value")
