"""Eviction policies to compare with: 2Q, GDSF, and Belady's clairvoyant one.

They implement `EvictionPolicy` over the engine's pool, so they too may only evict blocks that nothing cached depends on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush


class TwoQueues:
    """A block seen once waits in a short queue; one that is seen again, also soon after its eviction, joins the main LRU order.

    Source: Johnson & Shasha 1994, "2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm" (full version: the
    first queue holds a quarter of the blocks, the memory of evicted ones half as many names as blocks).
    """

    def __init__(self, num_blocks: int) -> None:
        self._most_new = num_blocks // 4
        self._most_ghosts = num_blocks // 2
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()
        self._keys: dict[int, bytes] = {}
        self._is_main: dict[int, bool] = {}
        self._new: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._num_new = 0

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""
        self._keys[block_id] = key
        self._is_main[block_id] = key in self._ghosts
        self._ghosts.pop(key, None)
        self._num_new += not self._is_main[block_id]

    def reuse(self, block_id: int, now: float) -> None:
        """See `EvictionPolicy.reuse`."""
        self._num_new -= not self._is_main[block_id]
        self._is_main[block_id] = True

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        (self._main if self._is_main[block_id] else self._new)[block_id] = None

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._new.pop(block_id, None)
        self._main.pop(block_id, None)

    def take(self, now: float) -> int:
        """See `EvictionPolicy.take`."""
        from_new = self._new and (self._num_new > self._most_new or not self._main)
        block_id, _ = (self._new if from_new else self._main).popitem(last=False)
        if from_new:
            self._num_new -= 1
            self._ghosts[self._keys[block_id]] = None
            if len(self._ghosts) > self._most_ghosts:
                self._ghosts.popitem(last=False)
        return block_id

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._new) + len(self._main)


class GreedyDualSizeFrequency:
    """Priority = age of the cache at the last use + uses (blocks are equal in size and cost); evicting raises the age.

    Source: Cherkasova 1998, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy".
    """

    def __init__(self) -> None:
        self._age = 0.0
        self._uses: dict[int, int] = {}
        self._bases: dict[int, float] = {}
        self._priorities: dict[int, float] = {}
        self._heap: list[tuple[float, int, int]] = []

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""
        self._uses[block_id], self._bases[block_id] = 1, self._age

    def reuse(self, block_id: int, now: float) -> None:
        """See `EvictionPolicy.reuse`."""
        self._uses[block_id] += 1
        self._bases[block_id] = self._age

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        self._priorities[block_id] = self._bases[block_id] + self._uses[block_id]
        heappush(self._heap, (self._priorities[block_id], order, block_id))

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._priorities.pop(block_id, None)

    def take(self, now: float) -> int:
        """See `EvictionPolicy.take`."""
        while True:
            priority, _, block_id = heappop(self._heap)
            if self._priorities.get(block_id) == priority:
                del self._priorities[block_id]
                self._age = priority
                return block_id

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._priorities)


class Clairvoyant:
    """Evicts the block whose next use is farthest away: no policy without foresight finds more in blocks that are independent.

    Source: Belady 1966, "A study of replacement algorithms for a virtual-storage computer".
    """

    def __init__(self, uses: Sequence[tuple[float, Sequence[bytes]]]) -> None:
        """`uses`: moments and the contents used then, ascending."""
        self._moments: dict[bytes, list[float]] = {}
        for now, keys in uses:
            for key in keys:
                self._moments.setdefault(key, []).append(now)
        self._keys: dict[int, bytes] = {}
        self._next: dict[int, float] = {}
        self._heap: list[tuple[float, int, int]] = []

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""
        self._keys[block_id] = key

    def reuse(self, block_id: int, now: float) -> None:
        """See `EvictionPolicy.reuse`."""

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        moments = self._moments[self._keys[block_id]]
        later = bisect_right(moments, at)
        self._next[block_id] = moments[later] if later < len(moments) else float("inf")
        heappush(self._heap, (-self._next[block_id], order, block_id))

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._next.pop(block_id, None)

    def take(self, now: float) -> int:
        """See `EvictionPolicy.take`."""
        while True:
            farthest, _, block_id = heappop(self._heap)
            if self._next.get(block_id) == -farthest:
                del self._next[block_id]
                return block_id

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._next)
