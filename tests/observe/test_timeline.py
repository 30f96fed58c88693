"""A sequence's record of its own time."""

from __future__ import annotations

from paceline.observe.timeline import Timeline


def test_time_preempted_is_summed_and_the_first_admission_counts() -> None:
    line = Timeline(arrived=1.0)
    line.admitted(2.0, num_cached=32, num_lost=0)
    line.stepped(3.0, has_token=False)
    line.stepped(4.0, has_token=True)
    line.preempted(5.0)
    line.admitted(7.5, num_cached=16, num_lost=20)
    line.preempted(8.0)
    line.finished(9.0)
    assert (line.first_scheduled, line.first_token, line.steps) == (2.0, 4.0, 2)
    assert (line.preempted_s, line.preemptions) == (3.5, 2)
    assert (line.cached_tokens, line.recomputed_tokens) == (32, 20)
