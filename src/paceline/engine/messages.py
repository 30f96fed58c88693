"""What crosses the boundary between a front (HTTP, CLI, `LLM`) and the engine: tagged, versioned structs.

A frame is a little-endian u32 length and a msgpack array. The same structs are passed by reference when the engine runs
in process. Commands go in, one `Frame` of events comes out per step.
"""

from __future__ import annotations

import msgspec

from paceline.engine.request import FinishReason, Request

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 256 << 20


class Submit(msgspec.Struct, frozen=True, tag="submit", array_like=True):
    """Run this request; it will end in exactly one `Finished` per sequence index."""

    request: Request


class Abort(msgspec.Struct, frozen=True, tag="abort", array_like=True):
    """Stop this request; unknown ids are ignored (it may just have finished)."""

    request_id: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown", array_like=True):
    """Abort everything, answer everybody, end."""


Command = Submit | Abort | Shutdown


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position: the chosen token's, then the most likely alternatives, likeliest first."""

    logprob: float
    rank: int
    """1 is the most likely token."""
    top_ids: list[int]
    top_logprobs: list[float]


class Tokens(msgspec.Struct, frozen=True, tag="tokens", array_like=True):
    """Tokens that one sequence of a request gained in this step (several when drafts were accepted)."""

    request_id: str
    index: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


class Timings(msgspec.Struct, frozen=True, array_like=True):
    """Where one sequence's time went inside the engine. Units: seconds; the moments are `time.monotonic()`."""

    arrived: float
    first_scheduled: float | None
    first_token: float | None
    finished: float
    preempted_s: float
    steps: int
    cached_tokens: int
    recomputed_tokens: int
    preemptions: int


class Finished(msgspec.Struct, frozen=True, tag="finished", array_like=True):
    """The one end of a sequence. `stop_reason`: the stop string or token id that ended it, None for the model's own end."""

    request_id: str
    index: int
    reason: FinishReason
    stop_reason: str | int | None
    num_prompt_tokens: int
    num_tokens: int
    timings: Timings
    message: str = ""
    """For reason `error`: what went wrong, fit for the caller's eyes."""
    kind: str = ""
    """For reason `error`: the class in `paceline.errors`; empty for an `EngineError`."""


Event = Tokens | Finished


def finished_outside(request: Request, index: int, reason: FinishReason, message: str, now: float, kind: str = "") -> Finished:
    """The end of a sequence that the engine tells nothing of: refused, cut off for its reader, or lost with the engine."""
    timings = Timings(request.arrived, None, None, now, 0.0, 0, 0, 0, 0)
    return Finished(request.id, index, reason, None, len(request.prompt_ids), 0, timings, message, kind)


class EngineStats(msgspec.Struct, frozen=True, array_like=True):
    """Gauges and running totals after a step."""

    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    """The null block included, which is never used."""
    num_blocks_used: int = 0
    num_preemptions: int = 0
    prefix_queries: int = 0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: int = 0
    """Prompt tokens found there."""
    num_steps: int = 0
    step_tokens: int = 0
    step_s: float = 0.0


class EngineInfo(msgspec.Struct, frozen=True, array_like=True):
    """What the engine turned out to be once loaded."""

    model_name: str
    family: str
    backend: str
    vocab_size: int
    max_model_len: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    threads: int
    load_s: float
    notes: list[str] = []
    """What `auto` resolved to, each with its reason."""


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """The engine has loaded and takes commands."""

    version: int
    info: EngineInfo


class Progress(msgspec.Struct, frozen=True, tag="progress", array_like=True):
    """Loading, a fraction from 0 to 1."""

    stage: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """The engine could not start, or died; nothing follows. `kind` names the error class in `paceline.errors`."""

    kind: str
    message: str


class Frame(msgspec.Struct, frozen=True, tag="frame", array_like=True):
    """All events of one step, with the stats after it."""

    events: list[Event]
    stats: EngineStats


Report = Ready | Progress | Failed | Frame
