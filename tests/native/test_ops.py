"""Every op on every target against NumPy in float64; tolerances count the float32 roundings of the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.backends.base import KvDtype
from paceline.backends.native import _core
from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType
from paceline.models.ops import Matrix, Vector
from paceline.models.spec import Activation, AttentionSpec, LinearScaling, RopeSpec
from tests.generators.steps import SliceOf, step_of
from tests.generators.tiny_models import random_blocks
from tests.native.one_op import TARGETS, OneOp, OpsFunction, float_matrix, normal_rows

EPSILON = float(np.finfo(np.float32).eps)
T = 23
STEP = step_of([SliceOf(range(T), 100, range(1, 9))])
ROPE = RopeSpec(dim=16, theta=1e4)


def vector(size: int, seed: int = 9) -> Vector:
    """A gain or bias."""
    return Vector("vector", np.random.default_rng(seed).normal(1.0, 0.3, size).astype(np.float32))


def rms_norm(ops: Any, x: Any) -> Any:
    return ops.rms_norm(x, vector(100), 1e-5)


def head_norm(ops: Any, x: Any) -> Any:
    return ops.head_norm(x, vector(20), 1e-6)


def rope(ops: Any, x: Any) -> Any:
    return ops.rope(x, ops.positions, ROPE, 20)


def rope_scaled(ops: Any, x: Any) -> Any:
    return ops.rope(x, ops.positions, RopeSpec(20, 1e6, LinearScaling(4.0)), 20)


def rope_of_a_view(ops: Any, x: Any) -> Any:
    _, second = ops.split(x, (40, 60))
    return ops.rope(second, ops.positions, ROPE, 20)


def silu(ops: Any, x: Any) -> Any:
    return ops.gated(x, Activation.SILU)


def gelu(ops: Any, x: Any) -> Any:
    return ops.gated(x, Activation.GELU_TANH)


def add(ops: Any, x: Any) -> Any:
    first, second = ops.split(x, (50, 50))
    return ops.add(first, second)


def softcap(ops: Any, x: Any) -> Any:
    return ops.softcap(x, 0.7)


def embed_scaled(ops: Any, x: Any) -> Any:
    return ops.embed(float_matrix(normal_rows(T, 33, 4), "scaled"), ops.token_ids, 3.3)


def float_linear(ops: Any, x: Any) -> Any:
    return ops.linear(x, float_matrix(normal_rows(70, 100, 5), "weight"), vector(70))


# The roundings of one result, relative to the largest value: norms as in native/tests/test_kernels.cpp; the angles of rope are
# float64 until they are rounded once; a dot product of K terms errs at most K times.
OPS: dict[str, tuple[OpsFunction, float]] = {
    "rms_norm": (rms_norm, 8 + 100 / 128),
    "head_norm": (head_norm, 9),
    "rope": (rope, 4),
    "rope scaled": (rope_scaled, 4),
    "rope of a view": (rope_of_a_view, 4),
    "silu": (silu, 8),
    "gelu_tanh": (gelu, 16),
    "add": (add, 1),
    "softcap": (softcap, 6),
    "embed scaled": (embed_scaled, 1),
    "float linear": (float_linear, 100),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_op_is_its_formula(name: str, target: str) -> None:
    function, roundings = OPS[name]
    one = OneOp(function, normal_rows(T, 100))
    expected = one.reference(STEP)
    assert np.abs(one.native(STEP, target) - expected).max() <= roundings * EPSILON * np.abs(expected).max()


@pytest.mark.parametrize("target", TARGETS)
def test_gathered_rows_come_in_the_order_asked(target: str) -> None:
    one = OneOp(lambda ops, x: x, normal_rows(T, 7))
    step = step_of([SliceOf(range(T), 0, range(1, 9))], row_indices=[22, 0, 5, 5])
    np.testing.assert_array_equal(one.native(step, target), one.rows[[22, 0, 5, 5]])


QUANTISED = [kind for kind in TensorType if kind.is_quantised]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_linear_rounds_like_the_reference(kind: TensorType, target: str) -> None:
    # Same int8 activations on both sides (they are rounded from the same float32 inputs), so only float sums differ.
    blocks = random_blocks(kind, (40, 512), 0.05, np.random.default_rng(3))
    data = np.frombuffer(blocks, np.uint8)
    weight = Matrix("weight", (RawTensor("weight", kind, (40, 512), data),))
    one = OneOp(lambda ops, x: ops.linear(x, weight, vector(40)), normal_rows(T, 512))
    # A type without a packed form is kept as float32 numbers, which multiply float activations.
    expected = one.reference(STEP, quantizes=_core.packed_type_for(kind.value) >= 0)
    # 512 / 32 blocks, a handful of roundings in each (512 terms where the type is kept as float)
    assert np.abs(one.native(STEP, target) - expected).max() <= 512 * EPSILON * np.abs(expected).max()


@pytest.mark.parametrize("target", TARGETS)
def test_integer_sums_are_exact(target: str) -> None:
    # Weight scales of 1 and activation blocks whose largest number is 127: the product is the integer sum itself.
    rng = np.random.default_rng(11)
    weights = rng.integers(-128, 128, (40, 256), np.int8)
    scale = np.frombuffer(np.float16(1.0).tobytes(), np.uint8)
    raw = np.concatenate([np.tile(scale, (40, 8, 1)), weights.reshape(40, 8, 32).view(np.uint8)], axis=2)
    matrix = Matrix("weight", (RawTensor("weight", TensorType.Q8_0, (40, 256), raw.reshape(-1)),))
    rows = rng.integers(-127, 128, (T, 256))
    rows[:, ::32] = 127
    one = OneOp(lambda ops, x: ops.linear(x, matrix), rows.astype(np.float64))
    np.testing.assert_array_equal(one.native(STEP, target), (rows @ weights.T.astype(np.int64)).astype(np.float32))


KV_DTYPES: tuple[KvDtype, ...] = ("int16", "int8")
ATTENTION: dict[str, tuple[AttentionSpec, int]] = {
    "one query head per key head": (AttentionSpec(2, 2, 16, ROPE, 0.25), 40),
    "grouped": (AttentionSpec(9, 3, 64, ROPE, 0.125), 300),
    "seven heads share one": (AttentionSpec(7, 1, 40, ROPE, 0.2), 33),
    "sixteen heads share one": (AttentionSpec(16, 1, 32, ROPE, 0.2), 20),
    "window": (AttentionSpec(4, 1, 32, ROPE, 0.2, window=8), 60),
    "window of one": (AttentionSpec(4, 2, 32, ROPE, 0.2, window=1), 20),
    "window over a chunk border": (AttentionSpec(4, 2, 32, ROPE, 0.2, window=200), 520),
    "softcap": (AttentionSpec(4, 2, 32, ROPE, 0.3, softcap=2.0), 270),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_softmax_over_what_is_seen(name: str, kv_dtype: KvDtype, target: str) -> None:
    spec, context = ATTENTION[name]
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim

    def attention(ops: Any, x: Any) -> Any:
        return ops.attention(*ops.split(x, (q_width, kv_width, kv_width)), 0, spec)

    one = OneOp(attention, normal_rows(context + 30, q_width + 2 * kv_width), kv_dtype)
    blocks = np.random.default_rng(1).permutation(np.arange(1, 80)).tolist()
    step = step_of([SliceOf(range(context), 0, blocks[:40]), SliceOf(range(context, context + 30), 0, blocks[40:])])
    expected = one.reference(step, spec.num_kv_heads, spec.head_dim)
    found = one.native(step, target)
    # A score sums head_dim products, its error goes through exp; the mix sums over the context.
    error, rounding = np.abs(found - expected), (spec.head_dim + context + 64) * EPSILON * np.abs(expected).max()
    # Where float32 and float64 lie on either side of a border, a weight (now and then two of a pair) differs by one unit of 2^-15
    assert np.quantile(error, 0.9) <= rounding
    assert error.max() <= rounding + 2 * 2**-15 * np.abs(one.rows).max()
    np.testing.assert_array_equal(one.native(step, target, threads=1), found)
