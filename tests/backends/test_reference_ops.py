"""The reference ops against plain loops: the oracle has an oracle of its own."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from paceline.backends.base import BLOCK_SIZE
from paceline.backends.reference_kv import ExactCache
from paceline.backends.reference_ops import ReferenceOps, activated
from paceline.backends.reference_weights import F64, LinearWeights
from paceline.models.ops import Vector
from paceline.models.spec import Activation, AttentionSpec, RopeSpec
from tests.generators.steps import SliceOf, step_of

EXACT = 1e-12
RNG_SEED = 5


def ops_of(*slices: SliceOf, num_groups: int = 2, head_dim: int = 4) -> ReferenceOps:
    """Ops bound to a step of these slices, with an empty cache of one layer."""
    shape = (9, BLOCK_SIZE, num_groups, head_dim)
    cache = ExactCache(np.full(shape, 100.0), np.full(shape, 100.0))
    return ReferenceOps(step_of(slices), LinearWeights(quantizes_activations=False), (cache,))


def test_silu_is_x_over_one_plus_exp_of_minus_x() -> None:
    for x in (-30.0, -1.5, 0.0, 0.3, 20.0):
        assert activated(np.array([x]), Activation.SILU)[0] == pytest.approx(x / (1 + math.exp(-x)), rel=1e-9, abs=1e-12)


def test_activations_of_huge_numbers_neither_overflow_nor_vanish() -> None:
    for activation in Activation:
        assert activated(np.array([-1e4, 1e4]), activation).tolist() == [0.0, 1e4]


def test_gelu_tanh_is_close_to_the_exact_gelu() -> None:
    for x in (-3.0, -0.5, 0.0, 0.7, 2.0):
        exact = 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
        # The approximation's own error is below 0.0005
        assert activated(np.array([x]), Activation.GELU_TANH)[0] == pytest.approx(exact, abs=5e-4)


def test_gate_comes_before_up() -> None:
    assert ops_of(SliceOf([0], 0, [1])).gated(np.array([[0.0, 20.0, 5.0, 3.0]]), Activation.SILU) == pytest.approx(np.array([[0.0, 60.0]]))


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    y = ops_of(SliceOf([0], 0, [1])).rms_norm(np.array([[3.0, 4.0]]), Vector("w", np.array([1.0, 2.0], np.float32)), 0.5)
    assert y == pytest.approx(np.array([[3.0, 8.0]]) / math.sqrt(13.0))


def test_head_norm_norms_each_head_alone() -> None:
    y = ops_of(SliceOf([0], 0, [1])).head_norm(np.array([[3.0, 3.0, 0.1, 0.1]]), Vector("w", np.ones(2, np.float32)), 0.0)
    assert y == pytest.approx(np.ones((1, 4)))


def test_rope_turns_pairs_as_complex_numbers_and_leaves_the_rest() -> None:
    spec, position = RopeSpec(4, 100.0), 7
    x = np.arange(1.0, 13.0).reshape(1, 12)
    y = ops_of(SliceOf([0], position, [1])).rope(x, np.array([position], np.int32), spec, head_dim=6).reshape(2, 6)
    for head, found in zip(x.reshape(2, 6), y, strict=True):
        for pair, frequency in enumerate((1.0, 0.1)):
            turned = complex(head[pair], head[pair + 2]) * cmath.exp(1j * position * frequency)
            assert (found[pair], found[pair + 2]) == pytest.approx((turned.real, turned.imag))
        assert found[4:].tolist() == head[4:].tolist()


def plain_attention(q: F64, k: F64, v: F64, spec: AttentionSpec) -> F64:
    """One sequence from its start, in loops. Shapes: q [T, H, D], k, v [T, G, D] → [T, H, D]"""
    y = np.zeros_like(q)
    for row in range(len(q)):
        first = 0 if spec.window is None else max(0, row - spec.window + 1)
        for head in range(spec.num_heads):
            group = head // (spec.num_heads // spec.num_kv_heads)
            scores = [float(q[row, head] @ k[other, group]) * spec.scale for other in range(first, row + 1)]
            if spec.softcap is not None:
                scores = [spec.softcap * math.tanh(score / spec.softcap) for score in scores]
            weights = [math.exp(score) for score in scores]
            y[row, head] = sum(weight * v[first + place, group] for place, weight in enumerate(weights)) / sum(weights)
    return y


@pytest.mark.parametrize("window", [None, 1, 5, 16, 17])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_attention_is_what_loops_give(window: int | None, softcap: float | None) -> None:
    spec = AttentionSpec(4, 2, 4, RopeSpec(4, 1e4), 0.5, window=window, softcap=softcap)
    lengths, rng = (20, 35), np.random.default_rng(RNG_SEED)
    ops = ops_of(*(SliceOf([0] * length, 0, blocks) for length, blocks in zip(lengths, ([8, 3], [5, 1, 6]), strict=True)))
    q, k, v = (rng.normal(size=(sum(lengths), width)) for width in (16, 8, 8))
    found = ops.attention(q, k, v, 0, spec)
    for start, end in ((0, 20), (20, 55)):
        expected = plain_attention(q[start:end].reshape(-1, 4, 4), k[start:end].reshape(-1, 2, 4), v[start:end].reshape(-1, 2, 4), spec)
        assert np.abs(found[start:end] - expected.reshape(-1, 16)).max() < EXACT


def test_softcap_squashes_towards_its_cap() -> None:
    assert ops_of(SliceOf([0], 0, [1])).softcap(np.array([1e6, -1e6, 0.0]), 30.0).tolist() == [30.0, -30.0, 0.0]
