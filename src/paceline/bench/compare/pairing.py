"""Measuring two sides in turns, and what a list of pairs says.

The one idea: a ratio is made within a pair, of two runs that stand next to each other in time, and only then is the median taken; what
changes slowly on the machine hits both sides of a pair and cancels. The side that goes first alternates.

    probe ── ours ── peer ── probe ── peer ── ours ── probe ── ours ── peer ── probe
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from paceline.bench.compare.regime import Regime, is_steady
from paceline.bench.compare.workloads import Workload
from paceline.bench.quantiles import median
from paceline.errors import EngineError

MAX_ATTEMPTS_PER_PAIR = 2
"""Pairs that were set aside are measured anew, up to this many attempts for each pair that is wanted."""


class Pair(msgspec.Struct, frozen=True):
    """Both sides of one workload, measured next to each other, and the machine before and after. Units: the workload's."""

    workload: str
    ours: float
    peer: float
    ratio: float
    before: Regime
    after: Regime
    is_steady: bool


class ComparisonRow(msgspec.Struct, frozen=True):
    """What the steady pairs of a workload say. `ratio` is ours / peer: above 1 we are faster, but for `verify5`, a time, dearer.

    Units:  `spread` is (largest − smallest) / median
    """

    workload: str
    unit: str
    ours: float
    ours_spread: float
    peer: float
    peer_spread: float
    ratio: float
    ratio_low: float
    ratio_high: float
    pairs: int
    set_aside: int
    read_gb_per_s: float
    peer_file: str


def run_pairs(
    workload: Workload, ours: Callable[[], float], peer: Callable[[], float], probe: Callable[[], Regime], num_pairs: int
) -> list[Pair]:
    """Pairs until `num_pairs` are steady or the attempts are used up; those set aside are among them."""
    pairs: list[Pair] = []
    after = probe()
    while sum(pair.is_steady for pair in pairs) < num_pairs and len(pairs) < MAX_ATTEMPTS_PER_PAIR * num_pairs:
        before = after
        if len(pairs) % 2 == 0:
            our_figure = ours()
            peer_figure = peer()
        else:
            peer_figure = peer()
            our_figure = ours()
        after = probe()
        steady = is_steady(before, after)
        pairs.append(Pair(workload.name, our_figure, peer_figure, our_figure / peer_figure, before, after, steady))
    return pairs


def summarize(workload: Workload, pairs: Sequence[Pair], peer_file: str) -> ComparisonRow:
    """The medians over the steady pairs. Errors: EngineError when there is none"""
    steady = [pair for pair in pairs if pair.is_steady]
    if not steady:
        raise EngineError(
            f"The memory's speed changed during each of the {len(pairs)} pairs of `{workload.name}`.\nTry on a quieter machine."
        )
    ours, peers, ratios = [pair.ours for pair in steady], [pair.peer for pair in steady], [pair.ratio for pair in steady]
    return ComparisonRow(
        workload=workload.name,
        unit=workload.unit,
        ours=median(ours),
        ours_spread=spread(ours),
        peer=median(peers),
        peer_spread=spread(peers),
        ratio=median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        pairs=len(steady),
        set_aside=len(pairs) - len(steady),
        read_gb_per_s=median([pair.after.read_gb_per_s for pair in steady]),
        peer_file=peer_file,
    )


def spread(figures: Sequence[float]) -> float:
    """How far figures lie apart, as a fraction of their median."""
    return (max(figures) - min(figures)) / median(figures)
