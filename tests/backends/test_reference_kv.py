"""The integer cache of the reference backend: how near it is to the exact one, and each of its roundings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator

from paceline.backends.base import BLOCK_SIZE, I32, KvDtype
from paceline.backends.reference_kv import (
    F64,
    SUM_LIMIT,
    ExactCache,
    IntegerCache,
    LayerCache,
    chunk_borders,
    key_limit,
    q_limit,
    rotated,
    rounded_heads,
    rounded_mix,
    value_limit,
)
from paceline.backends.reference_ops import is_seen
from paceline.models.spec import AttentionSpec, RopeSpec

DTYPES: tuple[KvDtype, ...] = ("int16", "int8")
NUM_BLOCKS, CONTEXT = 40, 600
SPEC = AttentionSpec(4, 2, 32, RopeSpec(32, 1e4), 32**-0.5)


@pytest.fixture
def rng() -> Generator:
    """Numbers from a seed."""
    return np.random.default_rng(3)


def attended(cache: LayerCache, rng: Generator, window: int | None = None) -> F64:
    """The last 20 of 600 tokens attend over blocks in a shuffled order."""
    k, v = rng.normal(size=(2, CONTEXT, 2, 32))
    positions: I32 = np.arange(CONTEXT, dtype=np.int32)
    blocks: I32 = rng.permutation(np.arange(1, NUM_BLOCKS, dtype=np.int32))[: -(-CONTEXT // BLOCK_SIZE)]
    cache.write(blocks[positions // BLOCK_SIZE], positions % BLOCK_SIZE, k, v)
    seen = is_seen(positions[-20:], np.arange(len(blocks) * BLOCK_SIZE), window)
    return cache.attend(rng.normal(0.0, 2.0, (2, 2, 20, 32)), blocks, 0, seen, SPEC)


# Rounding q and k to 127 steps moves scores of spread 2 by 2 % of it, and so the weights; 32 times less with 4095 steps
@pytest.mark.parametrize(("dtype", "tolerance"), [("int16", 0.003), ("int8", 0.08)])
@pytest.mark.parametrize("window", [None, 1, 300])
def test_integers_are_near_what_was_written(dtype: KvDtype, tolerance: float, window: int | None) -> None:
    expected = attended(ExactCache.empty(NUM_BLOCKS, 2, 32), np.random.default_rng(1), window)
    error = np.abs(attended(IntegerCache.empty(dtype, NUM_BLOCKS, 2, 32), np.random.default_rng(1), window) - expected)
    assert error.max() <= tolerance
    assert error.max() > tolerance / 100, "some rounding must have happened"


@pytest.mark.parametrize("dtype", DTYPES)
def test_copied_blocks_attend_the_same(dtype: KvDtype, rng: Generator) -> None:
    cache = IntegerCache.empty(dtype, NUM_BLOCKS, 2, 32)
    attended(cache, rng)
    q, seen = rng.normal(size=(2, 2, 1, 32)), np.ones((1, 32), bool)
    cache.copy(np.array([3, 4], np.int32), np.array([4, 9], np.int32))
    copied = cache.attend(q, np.array([4, 9], np.int32), 0, seen, SPEC)
    cache.copy(np.array([4, 9], np.int32), np.array([20, 21], np.int32))
    assert np.array_equal(copied, cache.attend(q, np.array([20, 21], np.int32), 0, seen, SPEC))


def test_a_head_is_rounded_to_steps_of_its_largest_channel() -> None:
    numbers, scales = rounded_heads(np.array([[2.0, -1.0, 0.3, 0.0]]), 10)
    assert numbers.tolist() == [[10, -5, 2, 0]]  # 1.5 steps: halves go to even
    assert scales.tolist() == [np.float32(2.0) / np.float32(10)]


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e38])
def test_what_is_no_number_counts_as_a_large_one(wild: float) -> None:
    numbers, scales = rounded_heads(np.array([[wild, -1.0]]), 4095)
    assert numbers.tolist() == [[4095, 0]]
    assert np.isfinite(scales).all()


def test_what_is_too_small_is_zero() -> None:
    numbers, scales = rounded_heads(np.array([[1e-31, -1e-40]]), 4095)
    assert numbers.tolist() == [[0, 0]]
    assert scales.tolist() == [0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [8, 64, 80, 128, 256, 512])
def test_sums_of_the_largest_integers_fit_32_bits(dtype: KvDtype, head_dim: int) -> None:
    assert key_limit(dtype, head_dim) * q_limit(dtype, head_dim) * head_dim <= SUM_LIMIT
    assert max(key_limit(dtype, head_dim), q_limit(dtype, head_dim), value_limit(dtype)) < 2**15


def test_rotation_keeps_products_and_spreads_a_channel(rng: Generator) -> None:
    x, y = rng.normal(size=(2, 64)).astype(np.float32)
    assert rotated(x) @ rotated(y) == pytest.approx(x @ y, rel=1e-4)
    spike = np.zeros(64, np.float32)
    spike[5] = 8.0
    assert np.abs(rotated(spike)).tolist() == [1.0] * 64


# 256 equal weights all round the same way: what one integer is worth must make up for it
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounded_weights_are_together_worth_what_they_were(dtype: KvDtype, rng: Generator) -> None:
    for weights in (np.full(256, 0.9), rng.random(256), np.eye(256)[3]):
        assert rounded_mix(weights, np.ones((256, 1)), dtype)[0] == pytest.approx(weights.sum(), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_seen_mixes_to_nothing(dtype: KvDtype) -> None:
    assert rounded_mix(np.zeros(16), np.ones((16, 4)), dtype).tolist() == [0.0] * 4


def test_chunks_lie_at_fixed_positions() -> None:
    assert chunk_borders(0, 16) == [(0, 16)]
    assert chunk_borders(0, 512) == [(0, 256), (256, 512)]
    assert chunk_borders(240, 288) == [(0, 16), (16, 272), (272, 288)]
