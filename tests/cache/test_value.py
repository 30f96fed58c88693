"""The policy that learns: what it keeps, what it remembers, and that it never offers a wrong block."""

from __future__ import annotations

from hashlib import blake2b
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from paceline.cache import value
from paceline.cache.block_pool import NULL_BLOCK, BlockPool
from paceline.cache.eviction import EvictionPolicy, LeastRecentlyUsed
from paceline.cache.value import ValuePolicy


def key_of(content: int) -> bytes:
    return blake2b(content.to_bytes(8, "little"), digest_size=16).digest()


class Contents:
    """Single blocks by content, over a real pool."""

    def __init__(self, num_blocks: int, policy: EvictionPolicy) -> None:
        self.pool = BlockPool(num_blocks + 1, policy)
        self.blocks: dict[int, int] = {}
        self.names: dict[int, int] = {}
        self.pool.on_evict = self._forget

    def _forget(self, block_id: int) -> None:
        del self.blocks[self.names.pop(block_id)]

    def use(self, content: int, now: float) -> bool:
        """Use a content for a moment; whether it was resident."""
        self.pool.now = now
        block_id = self.blocks.get(content)
        is_hit = block_id is not None
        if block_id is None:
            block_id = self.pool.allocate()
            self.pool.cache(block_id, NULL_BLOCK, key_of(content))
            self.blocks[content], self.names[block_id] = block_id, content
        else:
            self.pool.share(block_id)
        self.pool.release(block_id)
        return is_hit


def hit_share(policy: EvictionPolicy, uses: list[tuple[float, int]], num_blocks: int) -> float:
    contents = Contents(num_blocks, policy)
    hits = [contents.use(content, now) for now, content in uses]
    return sum(hits[len(hits) // 2 :]) / (len(hits) // 2)


def conversations(seed: int) -> list[tuple[float, int]]:
    """One new content a second; a third of them comes back about a minute after each use, most of those again and again."""
    rng, uses = Random(seed), list[tuple[float, int]]()
    for content in range(4000):
        now, chance = float(content), 0.33
        while True:
            uses.append((now, content))
            if rng.random() > chance:
                break
            now, chance = now + rng.uniform(45.0, 90.0), 0.8
    return sorted(uses)


def test_it_keeps_what_comes_back_after_a_minute_where_least_recent_hardly_can() -> None:
    uses = conversations(1)
    recent, learned = (hit_share(policy, uses, 40) for policy in (LeastRecentlyUsed(), ValuePolicy(40)))
    assert learned > 4 * recent
    assert learned > 0.15


def test_what_was_used_often_outlives_what_was_used_once() -> None:
    contents = Contents(8, ValuePolicy(8))
    for now in range(0, 600, 30):
        contents.use(1, float(now))
        for other in range(3):
            contents.use(1000 + 10 * now + other, float(now) + 1.0 + other)
    assert 1 in contents.blocks


def test_it_remembers_contents_that_were_evicted() -> None:
    policy = ValuePolicy(4)
    contents = Contents(4, policy)
    contents.use(1, 0.0)
    for other in range(2, 40):
        contents.use(other, float(other))
    contents.use(1, 50.0)
    assert policy._memories[key_of(1)].uses == 2


def test_its_memory_is_bounded() -> None:
    policy = ValuePolicy(4)
    policy._most_remembered = 100
    contents = Contents(4, policy)
    for count in range(5000):
        contents.use(count, float(count))
    assert len(policy._memories) <= 100
    assert len(policy._sampled) <= 100
    assert len(policy._keys) <= 4
    assert sum(len(cell) for cells in policy._cells for cell in cells) <= 4


def test_one_resident_block_used_for_ever_takes_no_more_room() -> None:
    policy = ValuePolicy(4)
    contents = Contents(4, policy)
    for count in range(20_000):
        contents.use(7, count * 0.1)
    assert sum(len(cell) for cells in policy._cells for cell in cells) <= value.STALE_ENTRIES + 2 * 4 + 1


@given(st.lists(st.tuples(st.integers(0, 11), st.floats(0.0, 90.0)), max_size=150), st.integers(1, 6))
def test_pool_and_policy_agree_whatever_happens(steps: list[tuple[int, float]], num_blocks: int) -> None:
    policy = ValuePolicy(num_blocks)
    contents, now = Contents(num_blocks, policy), 0.0
    for content, wait in steps:
        now += wait
        contents.use(content, now)
        assert len(policy) == contents.pool.num_idle == len(contents.blocks)
