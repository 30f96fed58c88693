"""Ownership of blocks: counts, idle blocks, eviction from the leaves."""

from __future__ import annotations

import pytest

from paceline.cache.block_pool import NULL_BLOCK, BlockPool
from paceline.cache.eviction import LeastRecentlyUsed


def new_pool(num_blocks: int = 5) -> BlockPool:
    """A pool with `num_blocks` − 1 usable blocks."""
    return BlockPool(num_blocks, LeastRecentlyUsed())


def cached_chain(pool: BlockPool, length: int) -> list[int]:
    """Owned blocks that follow each other in the cache."""
    chain: list[int] = []
    for _ in range(length):
        chain.append(pool.allocate())
        pool.cache(chain[-1], chain[-2] if len(chain) > 1 else NULL_BLOCK, b"")
    return chain


def test_the_null_block_is_never_handed_out() -> None:
    pool = new_pool()
    assert NULL_BLOCK not in {pool.allocate() for _ in range(pool.num_available)}
    assert pool.num_available == 0


def test_the_last_owner_frees_a_block() -> None:
    pool = new_pool()
    block_id = pool.allocate()
    pool.share(block_id)
    pool.release(block_id)
    assert pool.num_used == 1
    pool.release(block_id)
    assert (pool.num_used, pool.num_free) == (0, 4)


def test_a_block_cannot_be_released_more_often_than_owned() -> None:
    pool = new_pool()
    block_id = pool.allocate()
    pool.release(block_id)
    with pytest.raises(AssertionError, match="more often than owned"):
        pool.release(block_id)


def test_a_cached_block_stays_idle_and_can_be_shared_again() -> None:
    pool = new_pool()
    (block_id,) = cached_chain(pool, 1)
    pool.release(block_id)
    assert (pool.num_idle, pool.num_used, pool.num_available) == (1, 0, 4)
    pool.share(block_id)
    assert (pool.num_idle, pool.num_used) == (0, 1)


def test_free_blocks_are_taken_before_idle_ones() -> None:
    pool = new_pool()
    (block_id,) = cached_chain(pool, 1)
    pool.release(block_id)
    assert block_id not in [pool.allocate() for _ in range(3)]
    assert pool.allocate() == block_id


def test_leaves_are_evicted_before_what_they_follow() -> None:
    pool, evicted = new_pool(), list[int]()
    pool.on_evict = evicted.append
    chain = cached_chain(pool, 4)
    for block_id in chain:  # parents first: the least recently used one has a child
        pool.release(block_id)
    for _ in range(4):
        pool.allocate()
    assert evicted == chain[::-1]


def test_the_least_recently_released_leaf_is_evicted_first() -> None:
    pool, evicted = new_pool(), list[int]()
    pool.on_evict = evicted.append
    first, second = cached_chain(pool, 1) + cached_chain(pool, 1)
    pool.release(second)
    pool.release(first)
    pool.share(second)
    pool.release(second)
    for _ in range(4):
        pool.allocate()
    assert evicted == [first, second]


def test_an_owned_block_is_never_evicted() -> None:
    pool = new_pool()
    cached_chain(pool, 4)
    with pytest.raises(AssertionError, match="more blocks than are available"):
        pool.allocate()


def test_a_child_needs_an_owned_parent() -> None:
    pool = new_pool()
    (parent,) = cached_chain(pool, 1)
    pool.release(parent)
    with pytest.raises(AssertionError, match="owner of a child"):
        pool.cache(pool.allocate(), parent, b"")
