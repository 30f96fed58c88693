"""The numbers of an architecture in one vocabulary, and the `ModelSpec` they make.

The one idea: two containers say the same facts under different keys. Each reader fills one `Dimensions`; from there on there
is one path, and one place that checks that the numbers fit each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.errors import ModelError
from paceline.models.families import Family
from paceline.models.spec import AttentionSpec, DenseSpec, LayerSpec, ModelSpec, RopeSpec

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 1024
MAX_HEAD_DIM = 1024
MAX_VOCAB = 1 << 22
MAX_POSITIONS = (1 << 31) - 1
MAX_THETA = 1e15


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What a checkpoint's metadata says; `windowed[i]` tells whether layer i sees only the last `window` tokens."""

    num_layers: int
    width: int
    ffn_width: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    norm_eps: float
    rope: RopeSpec
    local_rope: RopeSpec
    window: int | None
    windowed: tuple[bool, ...]
    attention_scale: float
    qkv_bias: bool
    output_bias: bool
    tied_head: bool
    attention_softcap: float | None = None
    final_softcap: float | None = None


def build_spec(family: Family, dims: Dimensions, path: Path) -> ModelSpec:
    """The spec of a family with these dimensions. Errors: ModelError when they do not fit each other"""
    check(dims, path)
    return ModelSpec(
        family=family.name,
        vocab_size=dims.vocab_size,
        width=dims.width,
        layers=tuple(layer_spec(family, dims, is_windowed) for is_windowed in dims.windowed),
        norm_eps=dims.norm_eps,
        max_positions=dims.max_positions,
        tied_head=dims.tied_head,
        embedding_scale=float(np.float32(math.sqrt(dims.width))) if family.scaled_embedding else 1.0,
        final_softcap=dims.final_softcap,
    )


def layer_spec(family: Family, dims: Dimensions, is_windowed: bool) -> LayerSpec:
    """One layer of a family."""
    attention = AttentionSpec(
        num_heads=dims.num_heads,
        num_kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        rope=dims.local_rope if is_windowed else dims.rope,
        scale=dims.attention_scale,
        window=dims.window if is_windowed else None,
        qk_norm=family.qk_norm,
        bias=dims.qkv_bias,
        output_bias=dims.output_bias,
        softcap=dims.attention_softcap,
    )
    return LayerSpec(attention, DenseSpec(dims.ffn_width, family.activation), family.post_norms)


def window_pattern(family: Family, num_layers: int) -> tuple[bool, ...]:
    """Which layers have a window when the metadata names only its size."""
    if family.windows is None:
        return (False,) * num_layers
    return tuple((index + 1) % family.windows.full_every != 0 for index in range(num_layers))


def check(dims: Dimensions, path: Path) -> None:
    """Refuse dimensions that no model can have. Errors: ModelError"""
    for is_wrong, message in (
        (dims.num_heads % dims.num_kv_heads != 0, f"{dims.num_heads} heads cannot share {dims.num_kv_heads} key-value heads evenly"),
        (dims.head_dim % 2 != 0, f"the head width {dims.head_dim} is odd; expected an even number"),
        (dims.rope.dim % 2 != 0, f"the rotated width {dims.rope.dim} is odd; expected an even number"),
        (dims.rope.dim > dims.head_dim, f"the rotated width {dims.rope.dim} is more than the head width {dims.head_dim}"),
        (len(dims.windowed) != dims.num_layers, f"{len(dims.windowed)} layer kinds for {dims.num_layers} layers"),
        (any(dims.windowed) and dims.window is None, "some layers have a sliding window, but its size is missing"),
    ):
        if is_wrong:
            raise ModelError(message + ".", path=path)
