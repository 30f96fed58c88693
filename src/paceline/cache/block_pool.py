"""Who owns which block of sequence memory, as integers.

    free ──allocate──▶ owned ──last release──▶ free                (content unknown to the prefix cache)
                         │ cache
                         ▼
                  owned, cached ──last release──▶ idle ──share──▶ owned, cached
                                                   │ evict (no cached child)
                                                   ▼
                                                 free

The one idea: cached blocks form a forest (a block's parent holds the 16 tokens before it). Whoever owns a child owns its
parent, so every idle block can be reclaimed by evicting leaves first.

It owns no tensor and hashes nothing: backends hold the memory, `prefix_cache` knows the content.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.cache.eviction import EvictionPolicy

NULL_BLOCK = 0
"""Never handed out: padding of block tables, and the parent of a prefix's first block."""


def _forget_nothing(block_id: int) -> None:
    """The eviction listener of a pool without a prefix cache."""


class BlockPool:
    """Reference counts, the free list and the evictable blocks of one pool of equal blocks."""

    def __init__(self, num_blocks: int, policy: EvictionPolicy) -> None:
        assert num_blocks >= 2, "a pool needs the null block and one more"
        self.num_blocks = num_blocks
        self.on_evict: Callable[[int], None] = _forget_nothing
        self.now = 0.0
        """The engine's clock in seconds, set by whoever plans; only eviction looks at it."""
        self._policy = policy
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._ref_counts = [0] * num_blocks
        self._is_cached = bytearray(num_blocks)
        self._parents = [NULL_BLOCK] * num_blocks
        self._num_children = [0] * num_blocks
        self._last_used = [(0, 0.0)] * num_blocks
        self._num_idle = 0
        self._num_releases = 0

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def num_idle(self) -> int:
        """Cached blocks without an owner: found again by a hit, or evicted."""
        return self._num_idle

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give."""
        return len(self._free) + self._num_idle

    @property
    def num_used(self) -> int:
        """Blocks with an owner."""
        return self.num_blocks - 1 - self.num_available

    def ref_count(self, block_id: int) -> int:
        """How many owners a block has."""
        return self._ref_counts[block_id]

    def is_cached(self, block_id: int) -> bool:
        """Whether the prefix cache can find the block."""
        return bool(self._is_cached[block_id])

    def parent(self, block_id: int) -> int:
        """The cached block of the 16 tokens before a cached block, or the null block for a first one."""
        return self._parents[block_id]

    def allocate(self) -> int:
        """A block with one owner and no content, evicting one when none is free; the caller checked `num_available`."""
        block_id = self._free.pop() if self._free else self._evict()
        assert self._ref_counts[block_id] == 0, "a handed-out block has an owner"
        assert not self._is_cached[block_id], "a handed-out block is cached"
        self._ref_counts[block_id] = 1
        return block_id

    def share(self, block_id: int) -> None:
        """One more owner of a block that is owned or idle."""
        if self._ref_counts[block_id] == 0:
            assert self._is_cached[block_id], "a free block cannot be shared"
            self._num_idle -= 1
            self._policy.discard(block_id)
            self._policy.reuse(block_id, self.now)
        self._ref_counts[block_id] += 1

    def release(self, block_id: int) -> None:
        """One owner fewer; the last one leaves the block idle when it is cached, free otherwise."""
        assert self._ref_counts[block_id] > 0, "a block was released more often than owned"
        self._ref_counts[block_id] -= 1
        if self._ref_counts[block_id]:
            return
        if not self._is_cached[block_id]:
            self._free.append(block_id)
            return
        self._num_idle += 1
        self._num_releases += 1
        self._last_used[block_id] = (self._num_releases, self.now)
        if not self._num_children[block_id]:
            self._policy.add(block_id, self._num_releases, self.now)

    def cache(self, block_id: int, parent: int, key: bytes) -> None:
        """The block's content, named by `key`, can be found again, as what follows `parent` (null block: a first block)."""
        assert self._ref_counts[block_id] > 0, "only an owned block enters the cache"
        assert not self._is_cached[block_id], "a block enters the cache once"
        assert parent == NULL_BLOCK or (self._is_cached[parent] and self._ref_counts[parent] > 0), "the owner of a child owns its parent"
        self._is_cached[block_id] = True
        self._parents[block_id] = parent
        self._num_children[parent] += 1
        self._policy.enter(block_id, key, self.now)

    def _evict(self) -> int:
        assert len(self._policy), "asked for more blocks than are available"
        block_id = self._policy.take(self.now)
        assert self._ref_counts[block_id] == 0, "an owned block was offered for eviction"
        assert self._is_cached[block_id], "a free block was offered for eviction"
        assert self._num_children[block_id] == 0, "only leaves may be evicted"
        self.on_evict(block_id)
        self._num_idle -= 1
        self._is_cached[block_id] = False
        parent = self._parents[block_id]
        self._num_children[parent] -= 1
        if parent != NULL_BLOCK and not self._ref_counts[parent] and not self._num_children[parent]:
            self._policy.add(parent, *self._last_used[parent])
        return block_id
