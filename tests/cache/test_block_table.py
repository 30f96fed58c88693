"""A table owns its blocks: it grows, forks, copies on write, and gives everything back once."""

from __future__ import annotations

import pytest

from paceline.cache.block_pool import BlockPool
from paceline.cache.block_table import BlockTable, num_blocks_for
from paceline.cache.eviction import LeastRecentlyUsed


def new_pool() -> BlockPool:
    """A pool with 7 usable blocks."""
    return BlockPool(8, LeastRecentlyUsed())


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_a_table_grows_by_whole_blocks(num_tokens: int, num_blocks: int) -> None:
    table = BlockTable(new_pool())
    assert num_blocks_for(num_tokens) == table.num_missing(num_tokens) == num_blocks
    table.grow(num_tokens)
    assert len(table) == num_blocks
    assert table.num_missing(num_tokens) == 0


def test_a_table_is_released_exactly_once() -> None:
    pool = new_pool()
    table = BlockTable(pool)
    table.grow(40)
    assert pool.num_used == 3
    table.release()
    assert pool.num_used == 0
    with pytest.raises(AssertionError, match="released twice"):
        table.release()


def test_a_fork_shares_every_block_until_one_is_written() -> None:
    pool = new_pool()
    table = BlockTable(pool)
    table.grow(20)
    fork = table.fork()
    assert pool.num_used == 2
    copied = fork.make_writable(1)
    assert copied == (table.block_ids[1], fork.block_ids[1])
    assert fork.block_ids[0] == table.block_ids[0]
    assert pool.num_used == 3
    assert table.make_writable(1) is None, "its sibling has a copy of its own by now"
    table.release()
    fork.release()
    assert pool.num_used == 0


def test_a_replaced_block_goes_back() -> None:
    pool = new_pool()
    table, other = BlockTable(pool), BlockTable(pool)
    table.grow(16)
    other.grow(16)
    other.replace(0, table.block_ids[0])
    assert other.block_ids == table.block_ids
    assert pool.num_used == 1
