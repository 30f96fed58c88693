"""Pairs alternate who goes first, and only steady ones make the medians."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from paceline.bench.compare.pairing import Pair, run_pairs, spread, summarize
from paceline.bench.compare.regime import Regime
from paceline.bench.compare.workloads import WORKLOADS
from paceline.errors import EngineError

DECODE = WORKLOADS["decode1"]


def numbers(values: Iterable[float]) -> Callable[[], float]:
    return iter(values).__next__


def probes(values: Iterable[float]) -> Callable[[], Regime]:
    measured = iter(values)
    return lambda: Regime(next(measured))


def test_sides_take_turns_in_going_first() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], float]:
        return lambda: float(len(order)) if order.append(name) is None else 0.0  # type: ignore[func-returns-value]

    run_pairs(DECODE, side("ours"), side("peer"), lambda: Regime(50.0), 3)
    assert order == ["ours", "peer", "peer", "ours", "ours", "peer"]


def test_pair_during_which_the_memory_changed_is_set_aside_and_measured_anew() -> None:
    pairs = run_pairs(DECODE, numbers([10.0, 99.0, 12.0]), numbers([5.0, 1.0, 4.0]), probes([50.0, 51.0, 80.0, 79.0]), 2)
    assert [pair.is_steady for pair in pairs] == [True, False, True]
    row = summarize(DECODE, pairs, "the same file")
    assert (row.pairs, row.set_aside) == (2, 1)
    assert row.ratio == pytest.approx(2.5)
    assert (row.ours, row.peer) == (11.0, 4.5)


def test_each_pair_keeps_the_probes_around_it() -> None:
    pairs = run_pairs(DECODE, lambda: 1.0, lambda: 1.0, probes([50.0, 51.0, 52.0]), 2)
    assert [(pair.before.read_gb_per_s, pair.after.read_gb_per_s) for pair in pairs] == [(50.0, 51.0), (51.0, 52.0)]


def test_machine_that_never_rests_ends_after_two_attempts_a_pair() -> None:
    speeds = [40.0 if number % 2 else 80.0 for number in range(20)]
    pairs = run_pairs(DECODE, lambda: 1.0, lambda: 1.0, probes(speeds), 3)
    assert len(pairs) == 6
    with pytest.raises(EngineError, match="speed changed during each of the 6 pairs of `decode1`"):
        summarize(DECODE, pairs, "")


def test_ratio_is_the_median_of_the_pairs_ratios_not_the_medians_ratio() -> None:
    regime = Regime(50.0)
    pairs = [Pair("decode1", ours, peer, ours / peer, regime, regime, True) for ours, peer in ((10.0, 5.0), (20.0, 9.0), (40.0, 21.0))]
    row = summarize(DECODE, pairs, "")
    assert row.ratio == 2.0
    assert row.ours / row.peer == pytest.approx(20.0 / 9.0)
    assert row.ratio_low == pytest.approx(40.0 / 21.0)
    assert row.ratio_high == pytest.approx(20.0 / 9.0)


def test_spread_is_a_fraction_of_the_median() -> None:
    assert spread([9.0, 10.0, 12.0]) == pytest.approx(0.3)
