"""Keys and values of the reference backend: kept exactly, or rounded to integers as the native core keeps them.

The one idea: a cache knows how it stores a head and how to attend over what it stored. `ExactCache` is the formula in float64.
`IntegerCache` rounds where the core rounds (keys, values, queries, weights; kernels.h and kernels/kv_cache.h) with the core's
own float32 arithmetic, and is exact between those roundings, so that the two differ only where a number lies on a rounding
border.

Memory is not saved here: integers are kept as float64, which NumPy multiplies fastest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.backends.base import BLOCK_SIZE, I32, KvDtype, kv_head_bytes
from paceline.models.spec import AttentionSpec

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Seen = npt.NDArray[np.bool_]

CHUNK = 256
"""Logical positions whose weights are rounded together (`kAttentionChunk`)."""
LARGEST, SMALLEST = np.float32(1e30), np.float32(1e-30)
"""What is no number or larger counts as the first; a head whose numbers are all smaller than the second as zero."""
SUM_LIMIT = 2**31 - 1
WEIGHT_LIMIT = 32767


class LayerCache(Protocol):
    """Keys and values of one layer. Shapes: k and v [t, G, D], q and the result [G, H/G, t, D], seen [t, C]"""

    @property
    def bytes_per_block(self) -> int:
        """Bytes of 16 tokens."""
        ...

    def write(self, blocks: I32, offsets: I32, k: F64, v: F64) -> None:
        """Store a token's keys and values at each place."""
        ...

    def copy(self, sources: I32, targets: I32) -> None:
        """Copy blocks; all sources are read before any target is written."""
        ...

    def attend(self, q: F64, blocks: I32, first_position: int, seen: Seen, spec: AttentionSpec) -> F64:
        """Softmax attention over some blocks, the first of which begins at `first_position`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ExactCache:
    """What was written, in float64. Shapes: [B, 16, G, D] both"""

    keys: F64
    values: F64

    @classmethod
    def empty(cls, num_blocks: int, num_kv_heads: int, head_dim: int) -> ExactCache:
        """A cache of zeros."""
        shape = (num_blocks, BLOCK_SIZE, num_kv_heads, head_dim)
        return cls(np.zeros(shape), np.zeros(shape))

    @property
    def bytes_per_block(self) -> int:
        """Bytes of 16 tokens."""
        return int(self.keys[0].nbytes + self.values[0].nbytes)

    def write(self, blocks: I32, offsets: I32, k: F64, v: F64) -> None:
        """Store a token's keys and values at each place."""
        self.keys[blocks, offsets], self.values[blocks, offsets] = k, v

    def copy(self, sources: I32, targets: I32) -> None:
        """Copy blocks; all sources are read before any target is written."""
        for memory in (self.keys, self.values):
            memory[targets] = memory[sources]

    def attend(self, q: F64, blocks: I32, first_position: int, seen: Seen, spec: AttentionSpec) -> F64:
        """softmax(q·k·scale) · v over the positions seen."""
        keys, values = gathered(self.keys, blocks), gathered(self.values, blocks)
        scores = capped(q @ keys[:, None].swapaxes(-1, -2) * spec.scale, spec.softcap)
        mixed: F64 = softmax(np.where(seen, scores, -np.inf)) @ values[:, None]
        return mixed


@dataclass(frozen=True, slots=True, eq=False)
class IntegerCache:
    """Integers and their scales, as the native core keeps them. Shapes: [B, 16, G, D] and [B, 16, G] both"""

    dtype: KvDtype
    keys: F64
    values: F64
    key_scales: F64
    value_scales: F64
    _memories: tuple[F64, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memories", (self.keys, self.values, self.key_scales, self.value_scales))

    @classmethod
    def empty(cls, dtype: KvDtype, num_blocks: int, num_kv_heads: int, head_dim: int) -> IntegerCache:
        """A cache of zeros."""
        shape = (num_blocks, BLOCK_SIZE, num_kv_heads, head_dim)
        return cls(dtype, np.zeros(shape), np.zeros(shape), np.zeros(shape[:3]), np.zeros(shape[:3]))

    @property
    def bytes_per_block(self) -> int:
        """Bytes of 16 tokens in the native core."""
        return int(self.keys.shape[2]) * kv_head_bytes(self.dtype, int(self.keys.shape[3]))

    def write(self, blocks: I32, offsets: I32, k: F64, v: F64) -> None:
        """Store a token's keys and values at each place, rounded."""
        numbers = (*rounded_heads(k, key_limit(self.dtype, k.shape[-1]), self._rotates), *rounded_heads(v, value_limit(self.dtype)))
        for memory, rounded in zip((self.keys, self.key_scales, self.values, self.value_scales), numbers, strict=True):
            memory[blocks, offsets] = rounded

    def copy(self, sources: I32, targets: I32) -> None:
        """Copy blocks; all sources are read before any target is written."""
        for memory in self._memories:
            memory[targets] = memory[sources]

    def attend(self, q: F64, blocks: I32, first_position: int, seen: Seen, spec: AttentionSpec) -> F64:
        """Chunk by chunk; each chunk's weights are rounded relative to its own largest score, then the chunks are folded."""
        keys, values, key_scales, value_scales = (gathered(memory, blocks) for memory in self._memories)
        q_numbers, q_scales = rounded_heads(q, q_limit(self.dtype, q.shape[-1]), self._rotates)
        scores = q_numbers @ keys[:, None].swapaxes(-1, -2) * q_scales[..., None] * key_scales[:, None, None] * spec.scale
        scores = np.where(seen, capped(scores, spec.softcap), -np.inf)
        top, total, mix = np.full(q.shape[:-1], -np.inf), np.zeros(q.shape[:-1]), np.zeros(q.shape)
        for start, end in chunk_borders(first_position, scores.shape[-1]):
            own_top = scores[..., start:end].max(axis=-1)
            weights = np.exp(scores[..., start:end] - np.where(np.isfinite(own_top), own_top, 0.0)[..., None])
            own_mix = rounded_mix(weights * value_scales[:, None, None, start:end], values[:, None, start:end], self.dtype)
            new_top = np.maximum(top, own_top)
            keep, add = (np.exp(part - np.where(np.isfinite(new_top), new_top, 0.0)) for part in (top, own_top))
            total = total * keep + weights.sum(axis=-1) * add
            mix = mix * keep[..., None] + own_mix * add[..., None]
            top = new_top
        return mix / total[..., None]

    @property
    def _rotates(self) -> bool:
        head_dim = self.keys.shape[-1]
        return self.dtype == "int8" and head_dim & (head_dim - 1) == 0


def key_limit(dtype: KvDtype, head_dim: int) -> int:
    """The largest integer of a key: with the largest of a query, head_dim products stay below 2³¹."""
    return 127 if dtype == "int8" else min(WEIGHT_LIMIT, math.isqrt(SUM_LIMIT // head_dim))


def q_limit(dtype: KvDtype, head_dim: int) -> int:
    """The largest integer of a query."""
    return WEIGHT_LIMIT if dtype == "int8" else key_limit(dtype, head_dim)


def value_limit(dtype: KvDtype) -> int:
    """The largest integer of a value."""
    return 127 if dtype == "int8" else 4095


def rounded_heads(x: F64, limit: int, is_rotated: bool = False) -> tuple[F64, F64]:
    """Integers and the scale of each head, bit for bit as the native core rounds. Shapes: [..., D] → [..., D], [...]"""
    # The core's minimum and maximum take their second operand where the first is no number
    clipped = np.where(np.isnan(x), LARGEST, np.clip(x, -LARGEST, LARGEST)).astype(np.float32)
    channels = rotated(clipped) if is_rotated else clipped
    peaks = np.abs(channels).max(axis=-1)
    is_zero, bound = peaks < SMALLEST, np.float32(limit)
    inverses = np.divide(bound, peaks, out=np.zeros_like(peaks), where=~is_zero)
    return np.rint(channels * inverses[..., None]).astype(np.float64), np.where(is_zero, 0, peaks / bound).astype(np.float64)


def rotated(x: F32) -> F32:
    """Times the Hadamard matrix of ±1/√D, in the core's order of float32 sums. Shapes: [..., D] → same; D a power of two"""
    head_dim, half = x.shape[-1], 1
    while half < head_dim:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([first + second, first - second], axis=-2).reshape(x.shape)
        half *= 2
    result: F32 = x * (np.float32(1) / np.sqrt(np.float32(head_dim)))
    return result


def rounded_mix(weights: F64, values: F64, dtype: KvDtype) -> F64:
    """Σ weights · values with weights rounded to integers that are together worth what the weights were.

    Shapes:  [..., C], [..., C, D] → [..., D]
    """
    largest, total = weights.max(axis=-1, keepdims=True), weights.sum(axis=-1, keepdims=True)
    sum_limit = SUM_LIMIT // value_limit(dtype) - 2 * CHUNK
    some = largest >= SMALLEST
    density = np.minimum(WEIGHT_LIMIT / np.where(some, largest, np.inf), sum_limit / np.where(some, total, np.inf))
    integers = np.rint(weights * density)
    mix: F64 = integers @ values * (total / np.maximum(integers.sum(axis=-1, keepdims=True), 1))
    return mix


def chunk_borders(first_position: int, num_positions: int) -> list[tuple[int, int]]:
    """The parts of a range of positions that lie in one chunk each, counted from its start."""
    end = first_position + num_positions
    borders = [first_position, *range((first_position // CHUNK + 1) * CHUNK, end, CHUNK), end]
    return [(start - first_position, stop - first_position) for start, stop in pairwise(borders)]


def gathered(memory: F64, blocks: I32) -> F64:
    """The tokens of some blocks, in order. Shapes: [B, 16, G, ...], [b] → [G, 16·b, ...]"""
    tokens = memory[blocks].reshape(-1, *memory.shape[2:])
    return tokens.swapaxes(0, 1)


def capped(scores: F64, softcap: float | None) -> F64:
    """cap · tanh(score / cap), or the scores themselves."""
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def softmax(scores: F64) -> F64:
    """exp(x) normalised over the last axis. Shapes: any"""
    weights: F64 = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
