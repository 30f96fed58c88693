"""Equal prefixes are found, nothing else is."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from paceline.cache import prefix_cache
from paceline.cache.block_pool import BlockPool
from paceline.cache.block_table import BlockTable
from paceline.cache.eviction import LeastRecentlyUsed
from paceline.cache.prefix_cache import PrefixCache, PrefixChain, root_digest

ROOT = root_digest("model", "native:1", "")


@dataclass
class Shelf:
    """A pool with a cache, and computing sequences in it."""

    pool: BlockPool = field(default_factory=lambda: BlockPool(20, LeastRecentlyUsed()))
    cache: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.pool)

    def compute(self, tokens: list[int], root: bytes = ROOT) -> BlockTable:
        """A sequence that computes all its tokens without looking for a hit."""
        table = BlockTable(self.pool)
        table.grow(len(tokens))
        self.cache.register(table, PrefixChain(root), tokens, len(tokens))
        return table

    def find(self, tokens: list[int], root: bytes = ROOT) -> list[int]:
        """What a new sequence would share."""
        return self.cache.find(PrefixChain(root), tokens)


def tokens_of(count: int, first: int = 0) -> list[int]:
    """Counting tokens."""
    return list(range(first, first + count))


@pytest.mark.parametrize(("num_tokens", "num_found"), [(15, 0), (16, 0), (17, 1), (31, 1), (32, 1), (33, 2), (48, 2), (100, 3)])
def test_a_hit_is_whole_blocks_before_the_last_token(num_tokens: int, num_found: int) -> None:
    shelf = Shelf()
    table = shelf.compute(tokens_of(50))
    assert shelf.find(tokens_of(num_tokens)) == list(table.block_ids[:num_found])


def test_a_partly_filled_block_is_not_found() -> None:
    shelf = Shelf()
    shelf.compute(tokens_of(31))
    assert len(shelf.find(tokens_of(33))) == 1


def test_equal_blocks_after_different_prefixes_are_different() -> None:
    shelf = Shelf()
    shelf.compute([*tokens_of(16, first=100), *tokens_of(16)])
    assert shelf.find([*tokens_of(16, first=200), *tokens_of(17)]) == []
    assert shelf.find(tokens_of(17)) == []


def test_salts_models_and_numerics_do_not_mix() -> None:
    shelf = Shelf()
    shelf.compute(tokens_of(32))
    for root in (root_digest("model", "native:1", "a"), root_digest("other", "native:1", ""), root_digest("model", "native:2", "")):
        assert shelf.find(tokens_of(33), root) == []
    assert root_digest("a", "b", "c") != root_digest("ab", "", "c"), "parts are framed, not joined"


def test_two_who_compute_the_same_end_up_with_one_block() -> None:
    shelf = Shelf()
    first, second = shelf.compute(tokens_of(40)), shelf.compute(tokens_of(40))
    assert second.block_ids[:2] == first.block_ids[:2]
    assert second.block_ids[2] != first.block_ids[2], "the partly filled block is private"
    assert shelf.pool.num_used == 4
    first.release()
    second.release()
    assert (shelf.pool.num_used, shelf.pool.num_idle) == (0, 2)


def test_an_evicted_prefix_is_found_no_more_but_what_precedes_it_is() -> None:
    shelf = Shelf()
    shelf.compute(tokens_of(48)).release()
    for _ in range(shelf.pool.num_free + 1):
        shelf.pool.allocate()
    assert len(shelf.find(tokens_of(49))) == 2


def test_a_digest_collision_costs_a_miss_never_a_wrong_block(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        """A hash that is always the same."""

        def __init__(self, data: bytes, digest_size: int) -> None:
            del data, digest_size

        def digest(self) -> bytes:
            """The one digest."""
            return b"same"

    monkeypatch.setattr(prefix_cache, "blake2b", Constant)
    shelf = Shelf()
    first, second = shelf.compute(tokens_of(32)), shelf.compute(tokens_of(32, first=500))
    assert set(first.block_ids).isdisjoint(second.block_ids)
    assert shelf.find(tokens_of(33, first=500)) == []
    assert shelf.find(tokens_of(33)) == [first.block_ids[0]]


def test_a_chain_grows_with_its_tokens() -> None:
    chain, whole = PrefixChain(ROOT), PrefixChain(ROOT)
    tokens = tokens_of(64)
    for num_blocks in (1, 3, 4):
        chain.catch_up(tokens, num_blocks)
    whole.catch_up(tokens, 4)
    assert chain.digests == whole.digests
    assert len(set(chain.digests)) == 4
