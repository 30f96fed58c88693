"""Which cached block to give up when the pool is full.

The one idea: the pool offers only blocks that may go (no owner, no cached child), with when each was last used; a policy
orders them. Another policy is another class with these four methods.

It does not know what a block holds, nor frees anything itself.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

STALE_ENTRIES = 64
"""Stale heap entries tolerated beyond the live ones before the heap is rebuilt; bounds memory at twice the blocks."""


class EvictionPolicy(Protocol):
    """Orders the evictable blocks of one pool."""

    def add(self, block_id: int, last_used: int) -> None:
        """The block may go from now on; `last_used` counts the pool's releases."""
        ...

    def discard(self, block_id: int) -> None:
        """The block may not go any more; unknown blocks are ignored."""
        ...

    def take(self) -> int:
        """Remove and give the block to evict next; the pool asks only when there is one."""
        ...

    def __len__(self) -> int:
        """How many blocks may go right now."""
        ...


class LeastRecentlyUsed:
    """Evicts the block whose last owner left longest ago: a heap with lazy removal, O(log n)."""

    def __init__(self) -> None:
        self._last_used: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def add(self, block_id: int, last_used: int) -> None:
        """See `EvictionPolicy.add`."""
        self._last_used[block_id] = last_used
        heappush(self._heap, (last_used, block_id))
        if len(self._heap) > 2 * len(self._last_used) + STALE_ENTRIES:
            self._heap = [(used, block) for block, used in self._last_used.items()]
            heapify(self._heap)

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._last_used.pop(block_id, None)

    def take(self) -> int:
        """See `EvictionPolicy.take`."""
        while True:
            last_used, block_id = heappop(self._heap)
            if self._last_used.get(block_id) == last_used:
                del self._last_used[block_id]
                return block_id

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._last_used)
