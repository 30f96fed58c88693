"""Evicts the cached block that is worth least: the one whose room earns the fewest uses.

    class = how often the content was used (1, 2, 3, 4 and more; evicted contents are remembered by name)
    cell  = class × age of waiting; every cell has a value (`cache/reuse.py`), eviction empties the cheapest cell first

The one idea: blocks of one cell are alike, so the blocks need no values of their own: a few dozen cells are ordered anew
every `REFIT_S` seconds, and a block changes cells as it ages. A content seen once is on probation by itself: when one
use predicts little, its class is worth little.

Amortised O(1) a block; the only clock is the `now` that it is told. It does not weigh what recomputing a block costs: all
blocks of a pool hold equally many tokens.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import product
from typing import NamedTuple

from paceline.cache.reuse import EDGES, NUM_AGES, ReuseTable, age_of, prior_chances, values

NUM_CLASSES = 4
REFIT_S = 20.0
"""Seconds between two orders of the cells."""
FADE = 0.99
"""Weight that a count keeps from one order to the next: half of it after 23 minutes."""
MIN_MEMORY, MEMORY_PER_BLOCK = 32_768, 4
"""Contents remembered after their eviction: so many, or so many per block of the pool if that is more."""
STALE_ENTRIES = 64
"""Entries of cells that no longer count, tolerated beyond the live ones before the cells are cleaned."""
SAMPLED_BITS = 1
"""One content in 2³ is counted; which ones, its name decides."""


class Memory(NamedTuple):
    """What is known of a content, resident or not."""

    uses: int
    last_used: float


class ValuePolicy:
    """See the module."""

    def __init__(self, num_blocks: int) -> None:
        self._most_remembered = max(MIN_MEMORY, MEMORY_PER_BLOCK * num_blocks)
        self._keys: dict[int, bytes] = {}
        self._memories: OrderedDict[bytes, Memory] = OrderedDict()
        self._sampled: dict[bytes, None] = {}
        self._tables = [ReuseTable() for _ in range(NUM_CLASSES)]
        self._entries: dict[int, tuple[int, float]] = {}
        self._cells: list[list[deque[tuple[int, float, int]]]] = [[deque() for _ in range(NUM_AGES)] for _ in range(NUM_CLASSES)]
        self._order: list[tuple[int, int]] = []
        self._num_placed = 0
        self._fitted = -REFIT_S
        self._aged = 0.0

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""
        self._keys[block_id] = key
        self._use(key, now)

    def reuse(self, block_id: int, now: float) -> None:
        """See `EvictionPolicy.reuse`."""
        self._use(self._keys[block_id], now)

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        self._entries[block_id] = (order, at)
        key = self._keys[block_id]
        memory = self._memories.get(key)
        uses = 1 if memory is None else memory.uses
        if memory is not None and at > memory.last_used:
            self._memories[key] = Memory(uses, at)
        self._place(order, at, block_id, self._aged)
        self._num_placed += 1
        if self._num_placed > 2 * len(self._entries) + STALE_ENTRIES:
            self._clean()

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._entries.pop(block_id, None)

    def take(self, now: float) -> int:
        """See `EvictionPolicy.take`."""
        if now - self._fitted >= REFIT_S:
            self._refit(now)
        self._age(now)
        for kind, age in self._order:
            cell = self._cells[kind][age]
            while cell:
                order, at, block_id = cell.popleft()
                if self._entries.get(block_id) == (order, at):
                    del self._entries[block_id]
                    del self._keys[block_id]
                    return block_id
        raise AssertionError("asked for a block where none may go")

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._entries)

    def _class_of(self, block_id: int) -> int:
        memory = self._memories.get(self._keys[block_id])
        return 0 if memory is None else min(memory.uses, NUM_CLASSES) - 1

    def _use(self, key: bytes, now: float) -> None:
        """Count a use, and how long it was waited for."""
        before = self._memories.pop(key, None)
        uses = 1
        if before is not None:
            uses = before.uses + 1
            if key in self._sampled:
                self._tables[min(before.uses, NUM_CLASSES) - 1].add(now - before.last_used, is_used=True)
        elif not key[0] & ((1 << SAMPLED_BITS) - 1):
            self._sampled[key] = None
        self._memories[key] = Memory(uses, now)
        if len(self._memories) > self._most_remembered:
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop the content that was used longest ago."""
        key, memory = self._memories.popitem(last=False)
        if key in self._sampled:
            del self._sampled[key]
            self._tables[min(memory.uses, NUM_CLASSES) - 1].add(now - memory.last_used, is_used=False)

    def _place(self, order: int, at: float, block_id: int, now: float) -> None:
        """Put a block into the cell of its class and age, where its last use belongs."""
        cell = self._cells[self._class_of(block_id)][age_of(max(0.0, now - at))]
        if cell and order < cell[-1][0]:
            cell.appendleft((order, at, block_id))
        else:
            cell.append((order, at, block_id))

    def _age(self, now: float) -> None:
        """Move on what has waited beyond its cell's age; the order within a cell is that of last use, so heads suffice."""
        self._aged = now
        for cells, age in product(self._cells, range(NUM_AGES - 1)):
            cell = cells[age]
            while cell and now - cell[0][1] >= EDGES[age + 1]:
                order, at, block_id = cell.popleft()
                if self._entries.get(block_id) == (order, at):
                    self._place(order, at, block_id, now)

    def _clean(self) -> None:
        """Drop the entries of blocks that were taken or used again."""
        for cells in self._cells:
            for age, cell in enumerate(cells):
                cells[age] = deque(entry for entry in cell if self._entries.get(entry[2]) == entry[:2])
        self._num_placed = len(self._entries)

    def _refit(self, now: float) -> None:
        """Order the cells by value, from what was counted and what still waits."""
        self._fitted = now
        for table in self._tables:
            table.fade(FADE)
        waits: list[list[float]] = [[] for _ in range(NUM_CLASSES)]
        for key in self._sampled:
            uses, last_used = self._memories[key]
            waits[min(uses, NUM_CLASSES) - 1].append(now - last_used)
        waiting = [ReuseTable.of_waits(sorted(of_class)) for of_class in waits]
        tables = [counted.plus(open_) for counted, open_ in zip(self._tables, waiting, strict=True)]
        every = tables[0]
        for table in tables[1:]:
            every = every.plus(table)
        common = every.chances(prior_chances())
        worth = [values(table.chances(common)) for table in tables]
        self._order = sorted(product(range(NUM_CLASSES), range(NUM_AGES)), key=lambda cell: worth[cell[0]][cell[1]])
