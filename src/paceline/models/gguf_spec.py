"""GGUF metadata → `ModelSpec`.

Source: GGUF specification, "Standardized key-value pairs"; what it leaves to convention (Gemma's window pattern and local
rope, the attention scale) comes from the family's entry.
"""

from __future__ import annotations

import math

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint
from paceline.formats.quants import dequantize
from paceline.models import dimensions as limits
from paceline.models.dimensions import Dimensions, build_spec, window_pattern
from paceline.models.families import GGUF_NAMES, Family
from paceline.models.fields import Fields
from paceline.models.spec import FrequencyFactors, LinearScaling, ModelSpec, RopeScaling, RopeSpec

FREQUENCY_FACTORS = "rope_freqs.weight"
GEMMA3_27B_LAYERS = 62


def spec_from_gguf(family: Family, checkpoint: Checkpoint) -> ModelSpec:
    """The architecture that a GGUF file describes. Errors: ModelError naming the key or tensor"""
    fields = Fields(checkpoint.metadata, checkpoint.path, family.name + ".")
    refuse_experts(fields)
    num_layers = fields.integer("block_count", 1, limits.MAX_LAYERS)
    width = fields.integer("embedding_length", 1, limits.MAX_WIDTH)
    num_heads = fields.integer("attention.head_count", 1, limits.MAX_HEADS)
    head_dim = fields.integer("attention.key_length", 1, limits.MAX_HEAD_DIM, default_head_dim(fields, width, num_heads))
    fields.integer("attention.value_length", head_dim, head_dim, head_dim)
    rope = rope_spec(fields, checkpoint, head_dim)
    window = fields.integer("attention.sliding_window", 1, limits.MAX_POSITIONS) if family.windows else None
    dims = Dimensions(
        num_layers=num_layers,
        width=width,
        ffn_width=fields.integer("feed_forward_length", 1, limits.MAX_WIDTH),
        vocab_size=vocab_size(checkpoint),
        num_heads=num_heads,
        num_kv_heads=fields.integer("attention.head_count_kv", 1, num_heads, num_heads),
        head_dim=head_dim,
        max_positions=fields.integer("context_length", 1, limits.MAX_POSITIONS),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 0.1),
        rope=rope,
        local_rope=local_rope(fields, family, rope),
        window=window,
        windowed=window_pattern(family, num_layers),
        attention_scale=attention_scale(fields, family, num_layers, width / num_heads, head_dim),
        qkv_bias=family.qkv_bias or has_bias(checkpoint, GGUF_NAMES.q, GGUF_NAMES.k, GGUF_NAMES.v),
        output_bias=has_bias(checkpoint, GGUF_NAMES.o),
        tied_head=f"{GGUF_NAMES.head}.weight" not in checkpoint.tensor_names,
        attention_softcap=softcap(fields, "attn_logit_softcapping"),
        final_softcap=softcap(fields, "final_logit_softcapping"),
    )
    return build_spec(family, dims, checkpoint.path)


def refuse_experts(fields: Fields) -> None:
    """Refuse mixtures of experts, which share the dense families' names. Errors: ModelError"""
    if fields.integer("expert_count", 0, 1 << 16, 0) > 0:
        raise ModelError("mixtures of experts are not supported; expected a dense model.", path=fields.path)


def default_head_dim(fields: Fields, width: int, num_heads: int) -> int | None:
    """The head width when the file leaves it out: E / H. Errors: ModelError when that is no whole number"""
    if width % num_heads == 0:
        return width // num_heads
    if fields.has("attention.key_length"):
        return None
    raise ModelError(f"the width {width} cannot be split evenly over {num_heads} heads, and no head width is given.", path=fields.path)


def vocab_size(checkpoint: Checkpoint) -> int:
    """The rows of the embedding: the one count that cannot be wrong. Errors: ModelError"""
    name = f"{GGUF_NAMES.embedding}.weight"
    if name not in checkpoint.tensor_names:
        raise ModelError(f"the tensor `{name}` is missing; expected the token embedding.", path=checkpoint.path)
    rows = checkpoint.tensor(name).shape[0]
    if not 1 <= rows <= limits.MAX_VOCAB:
        raise ModelError(f"the tensor `{name}` has {rows} rows; expected 1 to {limits.MAX_VOCAB}.", path=checkpoint.path)
    return rows


def rope_spec(fields: Fields, checkpoint: Checkpoint, head_dim: int) -> RopeSpec:
    """The rotation of the layers with full attention. Errors: ModelError for a scaling that is not known"""
    scaling = rope_scaling(fields)
    if FREQUENCY_FACTORS in checkpoint.tensor_names:
        if scaling is not None:
            raise ModelError(f"both `{FREQUENCY_FACTORS}` and a rope scaling are given; expected one.", path=checkpoint.path)
        scaling = frequency_factors(checkpoint)
    dim = fields.integer("rope.dimension_count", 2, head_dim, head_dim)
    if isinstance(scaling, FrequencyFactors) and len(scaling.factors) != dim // 2:
        found = len(scaling.factors)
        raise ModelError(f"the tensor `{FREQUENCY_FACTORS}` has {found} numbers; expected {dim // 2}.", path=checkpoint.path)
    return RopeSpec(dim, fields.number("rope.freq_base", 1.0, limits.MAX_THETA, 10_000.0), scaling)


def rope_scaling(fields: Fields) -> RopeScaling | None:
    """The scaling that the metadata names. Errors: ModelError for one that is not known"""
    factor = fields.number("rope.scaling.factor", 0.0, 1e6, fields.number("rope.scale_linear", 0.0, 1e6, 0.0))
    kind = fields.text("rope.scaling.type", "linear" if factor else "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise fields.error("rope.scaling.type", kind, "`none` or `linear`")
    if factor == 0.0:
        raise fields.error("rope.scaling.factor", factor, "a number above 0")
    return None if factor == 1.0 else LinearScaling(factor)


def frequency_factors(checkpoint: Checkpoint) -> FrequencyFactors:
    """The explicit divisors of Llama 3's rotation. Errors: ModelError when one is not a positive number"""
    factors = tuple(float(value) for value in dequantize(checkpoint.tensor(FREQUENCY_FACTORS)).reshape(-1))
    if not all(math.isfinite(value) and value > 0.0 for value in factors):
        raise ModelError(f"the tensor `{FREQUENCY_FACTORS}` has numbers that are not positive.", path=checkpoint.path)
    return FrequencyFactors(factors)


def local_rope(fields: Fields, family: Family, rope: RopeSpec) -> RopeSpec:
    """The rotation of windowed layers: the family's own base, never scaled."""
    if family.windows is None:
        return rope
    return RopeSpec(rope.dim, fields.number("rope.freq_base_swa", 1.0, limits.MAX_THETA, family.windows.local_theta))


def attention_scale(fields: Fields, family: Family, num_layers: int, width_per_head: float, head_dim: int) -> float:
    """What scores are multiplied by: 1/sqrt(D), except in Gemma 3 27B, whose `query_pre_attn_scalar` is E/H and which GGUF
    does not write down."""
    is_gemma3_27b = family.name == "gemma3" and num_layers == GEMMA3_27B_LAYERS
    return fields.number("attention.scale", 0.0, 1e6, (width_per_head if is_gemma3_27b else head_dim) ** -0.5)


def softcap(fields: Fields, key: str) -> float | None:
    """A soft cap, or None when the file has none (absent or 0)."""
    return fields.number(key, 0.0, 1e6, 0.0) or None


def has_bias(checkpoint: Checkpoint, *names: str) -> bool:
    """Whether a linear layer of these names has a bias anywhere; GGUF says it only by the tensors' presence."""
    return any(tensor.endswith(tuple(f".{name}.bias" for name in names)) for tensor in checkpoint.tensor_names)
