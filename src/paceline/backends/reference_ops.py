"""The model's vocabulary in NumPy and float64: the oracle that every other implementation is measured against.

The one idea: each op is its formula. Nothing is fused, reordered or approximated; keys and values really go through the block
tables, so that a wrong table gives a wrong answer.

It is not written for speed beyond leaving matrix products to BLAS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.backends.base import BLOCK_SIZE, I32, StepInput
from paceline.backends.reference_kv import LayerCache
from paceline.backends.reference_weights import F64, LinearWeights
from paceline.formats.quants import dequantize_rows
from paceline.models.ops import Matrix, Vector
from paceline.models.rope import inverse_frequencies
from paceline.models.spec import Activation, AttentionSpec, RopeSpec

Array = npt.NDArray[Any]
"""What the ops take and give: i32 for ids, positions and indices, f64 for everything else."""


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceOps:
    """The ops bound to one step; arrays are NumPy, floats are float64."""

    step: StepInput
    linears: LinearWeights
    caches: tuple[LayerCache, ...]

    @property
    def token_ids(self) -> Array:
        """The step's token ids [T]."""
        return self.step.token_ids

    @property
    def positions(self) -> Array:
        """The step's positions [T]."""
        return self.step.positions

    @property
    def row_indices(self) -> Array:
        """Which tokens need logits [R]."""
        return self.step.row_indices

    def embed(self, table: Matrix, token_ids: Array, scale: float) -> Array:
        """Rows of the table times scale. Shapes: [V, E], [T] → [T, E]"""
        (part,) = table.parts
        return dequantize_rows(part, token_ids).astype(np.float64) * scale

    def rms_norm(self, x: Array, weight: Vector, eps: float) -> Array:
        """x / sqrt(mean(x²) + eps) · weight, per row. Shapes: [T, E] → same"""
        size: Array = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
        return x / size * weight.data

    def linear(self, x: Array, weight: Matrix, bias: Vector | None = None) -> Array:
        """x · weightᵀ + bias. Shapes: [T, K], [N, K] → [T, N]"""
        y = self.linears.multiply(x, weight)
        return y if bias is None else y + bias.data

    def split(self, x: Array, sizes: tuple[int, ...]) -> tuple[Array, ...]:
        """Adjacent column ranges. Shapes: [T, Σsizes] → [T, size] each"""
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=1))

    def head_norm(self, x: Array, weight: Vector, eps: float) -> Array:
        """`rms_norm` of each head. Shapes: [T, H·D] → same"""
        return self.rms_norm(x.reshape(len(x), -1, len(weight.data)), weight, eps).reshape(x.shape)

    def rope(self, x: Array, positions: Array, spec: RopeSpec, head_dim: int) -> Array:
        """Pairs (i, i + dim/2) rotated by position · inverse frequency. Shapes: [T, H·D] → same"""
        heads = x.reshape(len(x), -1, head_dim)
        angles = positions.astype(np.float64)[:, None, None] * inverse_frequencies(spec)
        cos, sin = np.cos(angles), np.sin(angles)
        first, second, rest = np.split(heads, [spec.dim // 2, spec.dim], axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1).reshape(x.shape)

    def attention(self, q: Array, k: Array, v: Array, layer: int, spec: AttentionSpec) -> Array:
        """Store k and v at the step's slots, then attend over each sequence's blocks. Shapes: q [T, H·D], k, v [T, G·D] → [T, H·D]"""
        cache = self.caches[layer]
        self._write(cache, k, v, spec)
        y = np.empty_like(q)
        for index in range(len(self.step.context_lens)):
            rows = slice(self.step.slice_starts[index], self.step.slice_starts[index + 1])
            y[rows] = self._attend(q[rows], self.step.positions[rows], index, cache, spec)
        return y

    def gated(self, gate_up: Array, activation: Activation) -> Array:
        """act(gate) · up. Shapes: [T, 2F] → [T, F]"""
        gate, up = self.split(gate_up, (gate_up.shape[1] // 2,) * 2)
        return activated(gate, activation) * up

    def add(self, x: Array, y: Array) -> Array:
        """x + y. Shapes: [T, E] both"""
        return x + y

    def gather_rows(self, x: Array, row_indices: Array) -> Array:
        """The rows that need logits. Shapes: [T, E], [R] → [R, E]"""
        return x[row_indices.astype(np.intp)]

    def softcap(self, x: Array, cap: float) -> Array:
        """cap · tanh(x / cap)."""
        return cap * np.tanh(x / cap)

    def _write(self, cache: LayerCache, k: F64, v: F64, spec: AttentionSpec) -> None:
        tables, positions = self.step.block_tables[0], self.step.positions
        owners = np.repeat(np.arange(len(tables)), np.diff(self.step.slice_starts))
        blocks, offsets = tables[owners, positions // BLOCK_SIZE], positions % BLOCK_SIZE
        k, v = (x.reshape(len(x), spec.num_kv_heads, spec.head_dim) for x in (k, v))
        cache.write(blocks, offsets, k, v)

    def _attend(self, q: F64, positions: I32, index: int, cache: LayerCache, spec: AttentionSpec) -> F64:
        """One sequence's slice. Shapes: q [t, H·D] → [t, H·D]"""
        # Blocks that the window has left may be anybody's by now: start at the first one that some row still sees
        first_seen = 0 if spec.window is None else max(0, int(positions.min()) - spec.window + 1)
        first_block, context_len = first_seen // BLOCK_SIZE, int(self.step.context_lens[index])
        blocks = self.step.block_tables[0][index, first_block : -(-context_len // BLOCK_SIZE)]
        key_positions = first_block * BLOCK_SIZE + np.arange(len(blocks) * BLOCK_SIZE)
        seen = is_seen(positions, key_positions, spec.window)
        # [t, H·D] → [G, H/G, t, D]: the heads of a group share keys and values
        grouped = q.reshape(len(q), spec.num_kv_heads, -1, spec.head_dim).transpose(1, 2, 0, 3)
        mixed = cache.attend(grouped, blocks, first_block * BLOCK_SIZE, seen, spec)
        return mixed.transpose(2, 0, 1, 3).reshape(q.shape)


def is_seen(positions: I32, key_positions: npt.NDArray[np.signedinteger], window: int | None) -> npt.NDArray[np.bool_]:
    """Which keys each row attends to: itself, and what lies before it within the window. Shapes: [t], [C] → [t, C]"""
    distance = positions[:, None] - key_positions[None, :]
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def activated(x: F64, activation: Activation) -> F64:
    """The gate's nonlinearity; both are written with tanh, which cannot overflow. Source: Hendrycks & Gimpel 2016 (arXiv:1606.08415)"""
    match activation:
        case Activation.SILU:
            return x * 0.5 * (1.0 + np.tanh(0.5 * x))
        case Activation.GELU_TANH:
            return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
