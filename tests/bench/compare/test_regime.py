"""The probe reads what it says it reads, and a change beyond the limit is seen in both directions."""

from __future__ import annotations

from contextlib import closing

import pytest

from paceline.bench.compare.regime import MAX_BARRIER_CHANGE, MAX_CHANGE, ReadProbe, Regime, is_steady


def test_probe_gives_a_speed_for_any_number_of_threads() -> None:
    for threads in (1, 3):
        with closing(ReadProbe(threads, num_bytes=1 << 16)) as probe:
            assert probe.measure().read_gb_per_s > 0


@pytest.mark.parametrize(("factor", "steady"), [(1.0, True), (0.99 * MAX_CHANGE, True), (1.01 * MAX_CHANGE, False)])
def test_change_is_judged_alike_up_and_down(factor: float, steady: bool) -> None:
    assert is_steady(Regime(40.0), Regime(40.0 * factor)) is steady
    assert is_steady(Regime(40.0 * factor), Regime(40.0)) is steady


@pytest.mark.parametrize(("factor", "steady"), [(1.5, True), (1.01 * MAX_BARRIER_CHANGE, False)])
def test_barrier_that_changed_is_a_change_too(factor: float, steady: bool) -> None:
    assert is_steady(Regime(40.0, 60.0), Regime(40.0, 60.0 * factor)) is steady
    assert is_steady(Regime(40.0, 60.0 * factor), Regime(40.0, 60.0)) is steady


def test_barrier_of_one_probe_alone_says_nothing() -> None:
    assert is_steady(Regime(40.0, 60.0), Regime(40.0))
