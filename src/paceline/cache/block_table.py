"""The blocks of one sequence, in order: the sole owner of one reference to each.

The one idea: ownership frees blocks. A table is released exactly once, and nothing else gives its blocks back.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from paceline.backends.base import BLOCK_SIZE
from paceline.cache.block_pool import BlockPool


def num_blocks_for(num_tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-num_tokens // BLOCK_SIZE)


class BlockTable:
    """Maps a sequence's positions to blocks: position p lies in block `block_ids[p // 16]`, slot p % 16."""

    __slots__ = ("_pool", "block_ids", "is_released", "num_cached")

    def __init__(self, pool: BlockPool, shared: Iterable[int] = ()) -> None:
        """A table that begins with cached blocks (a prefix hit), becoming one more owner of each."""
        self._pool = pool
        self.block_ids = array("i", shared)
        for block_id in self.block_ids:
            pool.share(block_id)
        self.num_cached = len(self.block_ids)
        """Leading blocks that the prefix cache knows."""
        self.is_released = False

    def __len__(self) -> int:
        return len(self.block_ids)

    def num_missing(self, num_tokens: int) -> int:
        """Blocks that `grow` would allocate."""
        return max(0, num_blocks_for(num_tokens) - len(self.block_ids))

    def grow(self, num_tokens: int) -> None:
        """Hold at least so many tokens; the caller checked the pool's `num_available`."""
        assert not self.is_released, "a released table cannot grow"
        for _ in range(self.num_missing(num_tokens)):
            self.block_ids.append(self._pool.allocate())

    def replace(self, block_index: int, block_id: int) -> None:
        """Own another block of equal content instead; the one before goes back to the pool."""
        self._pool.share(block_id)
        self._pool.release(self.block_ids[block_index])
        self.block_ids[block_index] = block_id

    def fork(self) -> BlockTable:
        """A second table over the same blocks; whoever writes into a shared one copies it first (`make_writable`)."""
        assert not self.is_released, "a released table cannot be forked"
        return BlockTable._of(self._pool, self.block_ids, self.num_cached)

    def make_writable(self, block_index: int) -> tuple[int, int] | None:
        """Own the block alone: the copy (from, to) that the next step must do first, or None when it was private already."""
        block_id = self.block_ids[block_index]
        if self._pool.ref_count(block_id) == 1:
            return None
        private = self._pool.allocate()
        self._pool.release(block_id)
        self.block_ids[block_index] = private
        return block_id, private

    def release(self) -> None:
        """Give every block back, the last first, so that a prefix outlives what follows it; exactly once."""
        assert not self.is_released, "a block table was released twice"
        self.is_released = True
        for block_id in reversed(self.block_ids):
            self._pool.release(block_id)

    @staticmethod
    def _of(pool: BlockPool, block_ids: Iterable[int], num_cached: int) -> BlockTable:
        table = BlockTable(pool, block_ids)
        table.num_cached = num_cached
        return table
