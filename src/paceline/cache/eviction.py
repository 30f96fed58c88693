"""Which cached block to give up when the pool is full: the protocol, and the two simple orders.

The one idea: the pool offers only blocks that may go (no owner, no cached child), with when each was last used; a policy
orders them. Another policy is another class with these methods (`cache/value.py` has the one that learns).

It does not know what a block holds, nor frees anything itself.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

STALE_ENTRIES = 64
"""Stale heap entries tolerated beyond the live ones before the heap is rebuilt; bounds memory at twice the blocks."""


class EvictionPolicy(Protocol):
    """Orders the evictable blocks of one pool."""

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """The block's content can be found from now on; `key` names the content, also after an eviction."""
        ...

    def reuse(self, block_id: int, now: float) -> None:
        """A block without an owner was found and is owned again."""
        ...

    def add(self, block_id: int, order: int, at: float) -> None:
        """The block may go from now on. `order` counts the pool's releases, `at` is the moment of its own, in seconds."""
        ...

    def discard(self, block_id: int) -> None:
        """The block may not go any more; unknown blocks are ignored."""
        ...

    def take(self, now: float) -> int:
        """Remove and give the block to evict next; the pool asks only when there is one."""
        ...

    def __len__(self) -> int:
        """How many blocks may go right now."""
        ...


class _Ordered:
    """Evicts the block with the smallest number: a heap with lazy removal, O(log n)."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""

    def reuse(self, block_id: int, now: float) -> None:
        """See `EvictionPolicy.reuse`."""

    def discard(self, block_id: int) -> None:
        """See `EvictionPolicy.discard`."""
        self._numbers.pop(block_id, None)

    def take(self, now: float) -> int:
        """See `EvictionPolicy.take`."""
        while True:
            number, block_id = heappop(self._heap)
            if self._numbers.get(block_id) == number:
                del self._numbers[block_id]
                return block_id

    def __len__(self) -> int:
        """See `EvictionPolicy.__len__`."""
        return len(self._numbers)

    def _push(self, block_id: int, number: int) -> None:
        self._numbers[block_id] = number
        heappush(self._heap, (number, block_id))
        if len(self._heap) > 2 * len(self._numbers) + STALE_ENTRIES:
            self._heap = [(number, block) for block, number in self._numbers.items()]
            heapify(self._heap)


class LeastRecentlyUsed(_Ordered):
    """Evicts the block whose last owner left longest ago."""

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        self._push(block_id, order)


class FirstInFirstOut(_Ordered):
    """Evicts the block whose content was computed longest ago, however often it was used since."""

    def __init__(self) -> None:
        super().__init__()
        self._entered: dict[int, int] = {}
        self._num_entered = 0

    def enter(self, block_id: int, key: bytes, now: float) -> None:
        """See `EvictionPolicy.enter`."""
        self._num_entered += 1
        self._entered[block_id] = self._num_entered

    def add(self, block_id: int, order: int, at: float) -> None:
        """See `EvictionPolicy.add`."""
        self._push(block_id, self._entered[block_id])
