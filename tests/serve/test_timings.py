"""The parts of an answer's time add up to the whole, whatever the engine reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.engine.messages import Timings
from paceline.serve.timings import server_timing, timing_report

moments = st.floats(0, 1000, allow_nan=False)
PARTS = ("receive_ms", "queue_ms", "prefill_ms", "decode_ms", "preempted_ms", "deliver_ms")


@given(st.lists(moments, min_size=4, max_size=4), moments, moments, st.one_of(st.none(), moments), st.one_of(st.none(), moments))
def test_the_parts_are_never_negative_and_add_up(
    ordered: list[float], submit_delay: float, preempted_s: float, scheduled: float | None, first_token: float | None
) -> None:
    received, _, finished, delivered = sorted(ordered)
    timings = Timings(received, scheduled, first_token, finished, preempted_s, 3, 0, 0, 0)
    report = timing_report(timings, received=received, submitted=received + submit_delay, delivered=delivered, num_tokens=5)
    parts = [getattr(report, part) for part in PARTS]
    assert min(parts) >= 0
    assert report.total_ms == pytest.approx(sum(parts), abs=1e-3)


def test_a_plain_answer_is_split_at_its_moments() -> None:
    timings = Timings(10.0, 10.3, 10.6, 11.6, 0.25, 7, 16, 5, 1)
    report = timing_report(timings, received=10.0, submitted=10.1, delivered=11.65, num_tokens=5)
    assert [getattr(report, part) for part in PARTS] == [100.0, 200.0, 300.0, 750.0, 250.0, 50.0]
    assert (report.total_ms, report.ttft_ms, report.tpot_ms) == (1650.0, 600.0, 250.0)
    assert (report.steps, report.cached_tokens, report.recomputed_tokens, report.preemptions) == (7, 16, 5, 1)


def test_an_answer_without_a_token_has_no_time_to_it() -> None:
    report = timing_report(Timings(1.0, None, None, 2.0, 0.0, 0, 0, 0, 0), received=1.0, submitted=1.0, delivered=2.0, num_tokens=0)
    assert (report.ttft_ms, report.tpot_ms, report.queue_ms) == (None, None, 1000.0)


def test_the_server_timing_header_names_every_part() -> None:
    timings = Timings(0.0, 0.1, 0.2, 0.3, 0.0, 1, 0, 0, 0)
    header = server_timing(timing_report(timings, received=0.0, submitted=0.0, delivered=0.3, num_tokens=1))
    shares = {"receive": 0, "queue": 100, "prefill": 100, "decode": 100, "preempted": 0, "deliver": 0, "total": 300}
    assert header == ", ".join(f"{name};dur={duration_ms:.3f}" for name, duration_ms in shares.items())
