"""The vocabulary of a forward pass: the interface is the intermediate representation.

The one idea: `decoder.forward` is ordinary Python against `Ops`. What implements `Ops` decides what calling it means:
`backends.reference` computes at once in NumPy, `backends.native.Recorder` computes nothing and appends instructions.

An `Ops` object is bound to one step: `token_ids`, `positions` and `row_indices` are handles on the step's inputs, and
`attention` knows the step's block tables. A model file sees no quantisation, device or batch layout.

Shape letters: T tokens, R logits rows, V vocabulary, E model width, H heads, G KV heads, D head width, F feed-forward width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import RawTensor
from paceline.models.spec import Activation, AttentionSpec, RopeSpec


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A linear layer's weight [N, K]: row ranges stacked in order, each in its file's own type (q, k, v may differ).

    Shapes:  parts[i].shape == (N_i, K), N = ΣN_i
    """

    name: str
    parts: tuple[RawTensor, ...]

    @property
    def num_rows(self) -> int:
        """N, the output features of all parts."""
        return sum(part.shape[0] for part in self.parts)

    @property
    def num_cols(self) -> int:
        """K, the input features."""
        return self.parts[0].shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """A small float32 weight [N]: a norm's gain or a bias."""

    name: str
    data: npt.NDArray[np.float32]


A = TypeVar("A")


class Ops(Protocol[A]):
    """The operations a model is written in; `A` is whatever the implementation calls an array."""

    @property
    def token_ids(self) -> A:
        """The step's token ids [T] i32."""
        ...

    @property
    def positions(self) -> A:
        """The step's positions [T] i32."""
        ...

    @property
    def row_indices(self) -> A:
        """Which of the T tokens need logits [R] i32."""
        ...

    def embed(self, table: Matrix, token_ids: A, scale: float) -> A:
        """Rows of `table` times `scale`. Shapes: [V, E], [T] → [T, E] f32"""
        ...

    def rms_norm(self, x: A, weight: Vector, eps: float) -> A:
        """x / sqrt(mean(x²) + eps) · weight, per row. Shapes: [T, E] → [T, E]. Source: Zhang & Sennrich 2019 (arXiv:1910.07467)"""
        ...

    def linear(self, x: A, weight: Matrix, bias: Vector | None = None) -> A:
        """x · weightᵀ + bias. Shapes: [T, K], [N, K] → [T, N]"""
        ...

    def split(self, x: A, sizes: tuple[int, ...]) -> tuple[A, ...]:
        """Adjacent column ranges of x, as views. Shapes: [T, Σsizes] → [T, size] each"""
        ...

    def head_norm(self, x: A, weight: Vector, eps: float) -> A:
        """`rms_norm` of each head on its own; the head width is weight's length D. Shapes: [T, H·D] → [T, H·D]"""
        ...

    def rope(self, x: A, positions: A, spec: RopeSpec, head_dim: int) -> A:
        """Rotate the first `spec.dim` channels of each head by its position's angles. Shapes: [T, H·D] → [T, H·D].
        Source: Su et al. 2021 (arXiv:2104.09864) §3.2.2"""
        ...

    def attention(self, q: A, k: A, v: A, layer: int, spec: AttentionSpec) -> A:
        """Write k and v into the cache of `layer` at the step's slots, then attend causally over each sequence's blocks.

        Shapes:  q [T, H·D], k [T, G·D], v [T, G·D] → [T, H·D]
        """
        ...

    def gated(self, gate_up: A, activation: Activation) -> A:
        """act(gate) · up. Shapes: [T, 2F] (gate first) → [T, F]"""
        ...

    def add(self, x: A, y: A) -> A:
        """x + y. Shapes: [T, E] both"""
        ...

    def gather_rows(self, x: A, row_indices: A) -> A:
        """The rows of x that need logits. Shapes: [T, E], [R] → [R, E]"""
        ...

    def softcap(self, x: A, cap: float) -> A:
        """cap · tanh(x / cap). Shapes: any"""
        ...
