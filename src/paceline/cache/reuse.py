"""How likely an unused block is needed again, by how long it has waited: learned while running.

    waited, s   0 ─ 5 ─ 10 ─ 15 ─ 20 ─ 30 ─ … ─ 1500 ─ 3600 ─ ∞        one histogram per class of blocks

The one idea: count, per class and age, how often blocks were used again and how long they were waited for; the quotient is
the chance per second. People think and type before they answer, so the chance rises for a minute and then falls: what
has waited longest is not what matters least. Value of keeping a block from age a on, over the best time to give up later:

    value(a) = max over e of  P(used again in a … e) / E[seconds kept]        (Gittins' index: expected uses per second of room)

Source: Gittins 1979, "Bandit processes and dynamic allocation indices"; the histogram is the life table of actuaries.

It knows nothing of blocks: it counts gaps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

EDGES = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 120.0, 150.0, 200.0, 300.0, 400.0, 600.0, 900.0, 1500.0, 3600.0)
"""Where the ages of waiting begin, in seconds; the last has no end."""
NUM_AGES = len(EDGES)
LAST_WIDTH = 3600.0
"""Seconds that the age without an end counts for."""
WIDTHS = (*(after - before for before, after in pairwise(EDGES)), LAST_WIDTH)
PSEUDO_USES = 3.0
"""How many uses it takes until a class's own count outweighs what all classes have in common."""
PRIOR_CHANCE = 1e-3
"""Chance per second before anything was counted, falling as 1/age from the first age's end on: the order is then least recent first."""


def age_of(waited: float) -> int:
    """The index of the age that a wait falls into."""
    return max(0, bisect_right(EDGES, waited) - 1)


class ReuseTable:
    """Uses and seconds waited, of one class."""

    __slots__ = ("uses", "waited")

    def __init__(self) -> None:
        self.uses = [0.0] * NUM_AGES
        self.waited = [0.0] * NUM_AGES

    def add(self, waited: float, *, is_used: bool) -> None:
        """A block waited so long, and then was used again, or nobody knows (forgotten)."""
        last = age_of(waited)
        for age in range(last):
            self.waited[age] += WIDTHS[age]
        self.waited[last] += min(waited - EDGES[last], WIDTHS[last])
        if is_used:
            self.uses[last] += 1.0

    @classmethod
    def of_waits(cls, waits: Sequence[float]) -> ReuseTable:
        """The table of blocks that have waited so long and still wait; `waits` ascend."""
        table, start = cls(), 0
        for age, (edge, width) in enumerate(zip(EDGES, WIDTHS, strict=True)):
            start = bisect_right(waits, edge, start)
            end = bisect_right(waits, edge + width, start)
            table.waited[age] = sum(waits[start:end]) - edge * (end - start) + width * (len(waits) - end)
        return table

    def fade(self, factor: float) -> None:
        """Let old counts weigh less."""
        self.uses = [uses * factor for uses in self.uses]
        self.waited = [waited * factor for waited in self.waited]

    def plus(self, other: ReuseTable) -> ReuseTable:
        """The counts of both."""
        table = ReuseTable()
        table.uses = [a + b for a, b in zip(self.uses, other.uses, strict=True)]
        table.waited = [a + b for a, b in zip(self.waited, other.waited, strict=True)]
        return table

    def chances(self, common: Sequence[float]) -> list[float]:
        """The chance per second of each age, drawn towards `common` where this table has counted little.

        Shapes:  [NUM_AGES] → [NUM_AGES]
        """
        expected = sum(chance * waited for chance, waited in zip(common, self.waited, strict=True))
        scale = (sum(self.uses) + PSEUDO_USES) / (expected + PSEUDO_USES)
        return [
            (uses + PSEUDO_USES) / (waited + PSEUDO_USES / (chance * scale))
            for uses, waited, chance in zip(self.uses, self.waited, common, strict=True)
        ]


def prior_chances() -> list[float]:
    """The chances before anything was counted. Shapes: → [NUM_AGES]"""
    return [PRIOR_CHANCE * EDGES[1] / max(edge, EDGES[1]) for edge in EDGES]


def values(chances: Sequence[float]) -> list[float]:
    """The value of keeping a block that has reached each age, in expected uses per second.

    Shapes:  [NUM_AGES] → [NUM_AGES]
    """
    return [_value_from(age, chances) for age in range(NUM_AGES)]


def _value_from(first: int, chances: Sequence[float]) -> float:
    still_waits, uses, seconds, best = 1.0, 0.0, 0.0, 0.0
    for age in range(first, NUM_AGES):
        used = still_waits * -math.expm1(-chances[age] * WIDTHS[age])
        uses += used
        seconds += used / chances[age]
        still_waits -= used
        best = max(best, uses / seconds)
    return best
