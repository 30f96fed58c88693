"""Where one answer's time went: six parts that add up to the whole, to the last digit.

    total = receive + queue + prefill + decode + preempted + deliver

    received        submitted      first scheduled      first token       finished       written
       |--- receive ---|---- queue ----|---- prefill ----|---- decode* ----|-- deliver --|
                                                          * without the time spent preempted

The one idea: every moment is `time.monotonic()` of one machine, and `total_ms` is the sum of the rounded parts.
"""

from __future__ import annotations

import msgspec

from paceline.engine.messages import Timings


class TimingReport(msgspec.Struct, frozen=True):
    """The `timings` object of an answer. Units: milliseconds."""

    total_ms: float
    receive_ms: float
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    preempted_ms: float
    deliver_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    steps: int
    cached_tokens: int
    preemptions: int
    recomputed_tokens: int


def timing_report(timings: Timings, *, received: float, submitted: float, delivered: float, num_tokens: int) -> TimingReport:
    """Split the time from `received` to `delivered` of a sequence with `num_tokens` new tokens."""
    finished = max(timings.finished, submitted)
    scheduled = min(max(timings.first_scheduled if timings.first_scheduled is not None else finished, submitted), finished)
    first_token = min(max(timings.first_token if timings.first_token is not None else finished, scheduled), finished)
    prefill_s, decode_s = first_token - scheduled, finished - first_token
    preempted_s = min(timings.preempted_s, prefill_s + decode_s)
    from_decode = min(preempted_s, decode_s)
    decode_s -= from_decode
    prefill_s -= preempted_s - from_decode
    deliver_s = max(delivered - finished, 0.0)
    parts = [round(1e3 * part, 3) for part in (submitted - received, scheduled - submitted, prefill_s, decode_s, preempted_s, deliver_s)]
    receive_ms, queue_ms, prefill_ms, decode_ms, preempted_ms, deliver_ms = parts
    has_token = timings.first_token is not None
    return TimingReport(
        total_ms=round(sum(parts), 3),
        receive_ms=receive_ms,
        queue_ms=queue_ms,
        prefill_ms=prefill_ms,
        decode_ms=decode_ms,
        preempted_ms=preempted_ms,
        deliver_ms=deliver_ms,
        ttft_ms=round(1e3 * (first_token - received), 3) if has_token else None,
        tpot_ms=round(1e3 * (finished - first_token) / (num_tokens - 1), 3) if has_token and num_tokens > 1 else None,
        steps=timings.steps,
        cached_tokens=timings.cached_tokens,
        preemptions=timings.preemptions,
        recomputed_tokens=timings.recomputed_tokens,
    )


def server_timing(report: TimingReport) -> str:
    """The report as the value of a `server-timing` header. Source: W3C Server Timing."""
    names = ("receive", "queue", "prefill", "decode", "preempted", "deliver", "total")
    return ", ".join(f"{name};dur={getattr(report, name + '_ms'):.3f}" for name in names)
