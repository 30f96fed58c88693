"""The simple orders, against plain lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.cache.eviction import STALE_ENTRIES, FirstInFirstOut, LeastRecentlyUsed


@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "take"]), st.integers(0, 9)), max_size=200))
def test_it_takes_what_was_used_longest_ago(steps: list[tuple[str, int]]) -> None:
    policy, expected = LeastRecentlyUsed(), dict[int, int]()
    for count, (kind, block_id) in enumerate(steps):
        if kind == "add":
            policy.add(block_id, count, 0.0)
            expected[block_id] = count
        elif kind == "discard":
            policy.discard(block_id)
            expected.pop(block_id, None)
        elif expected:
            oldest = min(expected, key=lambda block: expected[block])
            del expected[oldest]
            assert policy.take(0.0) == oldest
        assert len(policy) == len(expected)


def test_its_memory_is_bounded_by_its_blocks() -> None:
    policy = LeastRecentlyUsed()
    for count in range(10_000):
        policy.add(count % 3, count, 0.0)
    assert len(policy._heap) <= 2 * 3 + STALE_ENTRIES + 1


def test_first_in_goes_first_however_late_it_was_used() -> None:
    policy = FirstInFirstOut()
    for block_id in (3, 1, 2):
        policy.enter(block_id, b"", 0.0)
    for order, block_id in enumerate((1, 2, 3)):
        policy.add(block_id, order, 0.0)
    assert [policy.take(0.0) for _ in range(3)] == [3, 1, 2]
