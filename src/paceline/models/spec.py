"""What an architecture is, said as data: one tagged choice per layer, nothing about storage or devices.

The one idea: a family differs from another by values in these records, not by code. `decoder.py` reads them and writes
the forward pass once for all. A mixer or feed-forward of a new kind is a new member of the unions below.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Activation(Enum):
    """The gate's nonlinearity in a gated feed-forward."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Position interpolation: every angle is divided by `factor`. Source: Chen et al. 2023 (arXiv:2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Frequency-dependent scaling of Llama 3.1. Source: transformers `_compute_llama3_parameters`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class FrequencyFactors:
    """Explicit per-pair divisors of the inverse frequencies (GGUF's `rope_freqs.weight`), length dim/2."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | FrequencyFactors


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding over the first `dim` channels of a head; pairs are (i, i + dim/2)."""

    dim: int
    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Softmax attention of one layer; `window` None is full attention, else a token sees the last `window` tokens, itself included.

    `bias`: q, k and v have one · `output_bias`: the output projection has one.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeSpec
    scale: float
    window: int | None = None
    qk_norm: bool = False
    bias: bool = False
    output_bias: bool = False
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """A gated feed-forward: down(act(gate(x)) * up(x))."""

    width: int
    activation: Activation


Mixer = AttentionSpec
FeedForward = DenseSpec


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One decoder layer; `post_norms`: the mixer's and the feed-forward's outputs are normed before the residual add (Gemma)."""

    mixer: Mixer
    feed_forward: FeedForward
    post_norms: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A whole decoder-only model."""

    family: str
    vocab_size: int
    width: int
    layers: tuple[LayerSpec, ...]
    norm_eps: float
    max_positions: int
    tied_head: bool
    embedding_scale: float = 1.0
    final_softcap: float | None = None
