"""The front door: the one place where a validated `Request` is made, whoever asks (HTTP, CLI, `LLM`).

It checks what depends on the loaded model (vocabulary, context) and resolves what a request may leave open (seed,
`max_tokens`, a `top_k` over the vocabulary). The ranges of single parameters are checked by `SamplingParams` itself.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paceline.engine.messages import EngineInfo
from paceline.engine.request import Request, RequestClass
from paceline.errors import ContextLengthError, RequestError
from paceline.sampling.params import SamplingParams

MAX_DEADLINE_S = 24 * 3600.0


def make_request(  # every argument is a field of the request or what it is checked against
    *,
    request_id: str,
    prompt_ids: list[int],
    params: SamplingParams,
    info: EngineInfo,
    eos_ids: tuple[int, ...],
    request_class: RequestClass = "interactive",
    priority: int = 0,
    deadline_s: float | None = None,
    cache_salt: str = "",
    now: float,
    draw_seed: Callable[[], int],
) -> Request:
    """A request that the engine can serve, with seed and `max_tokens` resolved.

    Errors:  RequestError naming the field · ContextLengthError with both true numbers
    """
    resolved = _resolve(params, len(prompt_ids), info, draw_seed)  # first: what fits is short enough to look through
    _check_prompt(prompt_ids, info.vocab_size)
    params.check_vocabulary(info.vocab_size)
    if deadline_s is not None and not 0 < deadline_s <= MAX_DEADLINE_S:
        raise RequestError(f"`deadline_s` is {deadline_s}; expected more than 0, at most {MAX_DEADLINE_S:.0f}.", param="deadline_s")
    return Request(
        id=request_id,
        prompt_ids=prompt_ids,
        params=resolved,
        stop_bytes=tuple(stop.encode() for stop in params.stop),
        eos_ids=eos_ids,
        request_class=request_class,
        priority=priority,
        deadline_s=deadline_s,
        cache_salt=cache_salt,
        arrived=now,
    )


def _check_prompt(prompt_ids: list[int], vocab_size: int) -> None:
    if not prompt_ids:
        raise RequestError("The prompt is empty; expected at least one token.", param="prompt", code="invalid_value")
    wrong = next((token_id for token_id in prompt_ids if not 0 <= token_id < vocab_size), None)
    if wrong is not None:
        raise RequestError(
            f"The prompt has token id {wrong}; the vocabulary is 0 to {vocab_size - 1}.", param="prompt", code="invalid_value"
        )


def _resolve(params: SamplingParams, num_prompt: int, info: EngineInfo, draw_seed: Callable[[], int]) -> SamplingParams:
    """The params with a seed, a `max_tokens` that fits the context and a `top_k` within the vocabulary."""
    room = info.max_model_len - num_prompt
    if room < 1 or (params.max_tokens or 0) > room:
        raise ContextLengthError(num_tokens=num_prompt, max_model_len=info.max_model_len, max_tokens=params.max_tokens)
    max_tokens = params.max_tokens or room
    if params.min_tokens > max_tokens:
        raise RequestError(
            f"`min_tokens` is {params.min_tokens}; expected at most `max_tokens`, here {max_tokens}.",
            param="min_tokens",
            code="invalid_value",
        )
    seed = draw_seed() if params.seed is None else params.seed
    top_k = params.top_k if params.top_k <= info.vocab_size else 0  # off: no integer is then too long for a frame or an array
    return msgspec.structs.replace(params, seed=seed, max_tokens=max_tokens, top_k=top_k)
