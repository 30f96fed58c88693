"""A request as the engine knows it: ids and bytes, no text, no JSON. Crosses the process boundary unchanged."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.sampling.params import SamplingParams

RequestClass = Literal["interactive", "batch"]
FinishReason = Literal["stop", "length", "abort", "deadline", "error"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One validated request: built once at a door, then never changed.

    `params.seed` is always resolved (the front door draws one), `params.max_tokens` too (clipped to the context).
    """

    id: str
    prompt_ids: list[int]
    params: SamplingParams
    stop_bytes: tuple[bytes, ...] = ()
    """The stop strings as UTF-8; matched by the engine against each token's bytes."""
    eos_ids: tuple[int, ...] = ()
    """The model's end tokens; ignored when `params.ignore_eos`."""
    request_class: RequestClass = "interactive"
    priority: int = 0
    """Lower runs sooner."""
    deadline_s: float | None = None
    """Seconds after arrival at which the request is finished with reason `deadline`."""
    cache_salt: str = ""
    """Requests share prefix blocks only within one salt."""
    arrived: float = 0.0
    """`time.monotonic()` at the front door (one machine, one clock for both processes)."""
