"""`config.json` of a Hugging Face folder → `ModelSpec`.

The one idea: both generations of the file are read. Older ones say `rope_theta` and `rope_scaling` (its kind under `type` or
`rope_type`), newer ones `rope_parameters`, once for all layers or once per layer type. Multimodal Gemma 3 keeps its text model
under `text_config`.
"""

from __future__ import annotations

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint
from paceline.models import dimensions as limits
from paceline.models.dimensions import Dimensions, build_spec, window_pattern
from paceline.models.families import Family
from paceline.models.fields import Fields
from paceline.models.spec import Activation, LinearScaling, Llama3Scaling, ModelSpec, RopeScaling, RopeSpec

FULL, SLIDING = "full_attention", "sliding_attention"
ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}


def spec_from_config(family: Family, checkpoint: Checkpoint) -> ModelSpec:
    """The architecture that a folder's `config.json` describes. Errors: ModelError naming the key"""
    fields = config_fields(family, checkpoint)
    refuse_unknown(family, fields)
    num_layers = fields.integer("num_hidden_layers", 1, limits.MAX_LAYERS)
    width = fields.integer("hidden_size", 1, limits.MAX_WIDTH)
    num_heads = fields.integer("num_attention_heads", 1, limits.MAX_HEADS)
    head_dim = fields.integer("head_dim", 1, limits.MAX_HEAD_DIM, width // num_heads)
    windowed = windowed_layers(family, fields, num_layers)
    attention_bias = fields.flag("attention_bias", False)
    dims = Dimensions(
        num_layers=num_layers,
        width=width,
        ffn_width=fields.integer("intermediate_size", 1, limits.MAX_WIDTH),
        vocab_size=fields.integer("vocab_size", 1, limits.MAX_VOCAB),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", 1, num_heads, num_heads),
        head_dim=head_dim,
        max_positions=fields.integer("max_position_embeddings", 1, limits.MAX_POSITIONS),
        norm_eps=fields.number("rms_norm_eps", 0.0, 0.1, 1e-6),
        rope=rope_spec(fields, head_dim, FULL),
        local_rope=local_rope(family, fields, head_dim),
        window=fields.integer("sliding_window", 1, limits.MAX_POSITIONS) if any(windowed) else None,
        windowed=windowed,
        attention_scale=fields.number("query_pre_attn_scalar", 1e-6, 1e6, float(head_dim)) ** -0.5,
        qkv_bias=family.qkv_bias or attention_bias,
        output_bias=attention_bias,
        tied_head=fields.flag("tie_word_embeddings", False),
        attention_softcap=softcap(fields, "attn_logit_softcapping"),
        final_softcap=softcap(fields, "final_logit_softcapping"),
    )
    return build_spec(family, dims, checkpoint.path)


def config_fields(family: Family, checkpoint: Checkpoint) -> Fields:
    """The text model's configuration over the family's defaults. Errors: ModelError"""
    own = Fields(checkpoint.metadata, checkpoint.path).table("text_config")
    values = checkpoint.metadata if own is None else own.values
    given = {key: value for key, value in values.items() if value is not None}
    return Fields({**family.config_defaults, **given}, checkpoint.path)


def refuse_unknown(family: Family, fields: Fields) -> None:
    """Refuse what the forward pass does not have. Errors: ModelError"""
    key = "hidden_activation" if fields.has("hidden_activation") else "hidden_act"
    name = fields.text(key, family.activation.value if family.activation is Activation.SILU else "gelu_pytorch_tanh")
    if ACTIVATIONS.get(name) is not family.activation:
        raise fields.error(key, name, f"the activation of `{family.name}`, `{family.activation.value}`")
    for flag in ("mlp_bias", "use_bidirectional_attention"):
        if fields.flag(flag, False):
            raise fields.error(flag, True, "false")


def windowed_layers(family: Family, fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """Which layers see only a sliding window. Errors: ModelError for a kind of layer that is not known"""
    kinds = fields.values.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or any(kind not in (FULL, SLIDING) for kind in kinds):
            raise fields.error("layer_types", kinds, f"a list of `{FULL}` and `{SLIDING}`")
        return tuple(kind == SLIDING for kind in kinds)
    if fields.flag("use_sliding_window", False):
        first = fields.integer("max_window_layers", 0, limits.MAX_LAYERS, num_layers)
        return tuple(index >= first for index in range(num_layers))
    if family.windows is not None and fields.has("sliding_window_pattern"):
        every = fields.integer("sliding_window_pattern", 1, limits.MAX_LAYERS)
        return tuple((index + 1) % every != 0 for index in range(num_layers))
    return window_pattern(family, num_layers)


def rope_spec(fields: Fields, head_dim: int, kind: str) -> RopeSpec:
    """The rotation of one kind of layer. Errors: ModelError for a scaling that is not known"""
    parameters = rope_parameters(fields, kind)
    share = parameters.number("partial_rotary_factor", 0.0, 1.0, fields.number("partial_rotary_factor", 0.0, 1.0, 1.0))
    dim = int(head_dim * share)
    if dim < 2:
        raise fields.error("partial_rotary_factor", share, "a share that leaves at least two channels")
    theta = parameters.number("rope_theta", 1.0, limits.MAX_THETA, fields.number("rope_theta", 1.0, limits.MAX_THETA, 10_000.0))
    return RopeSpec(dim, theta, rope_scaling(parameters, fields))


def rope_parameters(fields: Fields, kind: str) -> Fields:
    """The table that holds the rotation of one kind of layer, in either generation of the file; empty when there is none."""
    table = fields.table("rope_parameters") or fields.table("rope_scaling") or Fields({}, fields.path)
    if table.has(FULL) or table.has(SLIDING):
        return table.table(kind) or Fields({}, fields.path)
    return table


def rope_scaling(parameters: Fields, fields: Fields) -> RopeScaling | None:
    """The scaling that a table of rope parameters names. Errors: ModelError for one that is not known"""
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(parameters.number("factor", 1e-6, 1e6))
        case "llama3":
            low = parameters.number("low_freq_factor", 1e-6, 1e6)
            original = fields.integer("max_position_embeddings", 1, limits.MAX_POSITIONS)
            return Llama3Scaling(
                factor=parameters.number("factor", 1e-6, 1e6),
                low_freq_factor=low,
                high_freq_factor=parameters.number("high_freq_factor", low * (1 + 1e-6), 1e6),
                original_max_positions=parameters.integer("original_max_position_embeddings", 1, limits.MAX_POSITIONS, original),
            )
        case _:
            raise ModelError(
                f"the rope scaling `{kind[:80]}` is not supported; expected `default`, `linear` or `llama3`.", path=fields.path
            )


def local_rope(family: Family, fields: Fields, head_dim: int) -> RopeSpec:
    """The rotation of windowed layers. Errors: ModelError"""
    if family.windows is None:
        return rope_spec(fields, head_dim, SLIDING)
    parameters = fields.table("rope_parameters")
    local = parameters.table(SLIDING) if parameters is not None else None
    if local is not None:
        return RopeSpec(
            head_dim, local.number("rope_theta", 1.0, limits.MAX_THETA, family.windows.local_theta), rope_scaling(local, fields)
        )
    return RopeSpec(head_dim, fields.number("rope_local_base_freq", 1.0, limits.MAX_THETA, family.windows.local_theta))


def softcap(fields: Fields, key: str) -> float | None:
    """A soft cap, or None when the file has none (absent or 0)."""
    return fields.number(key, 0.0, 1e6, 0.0) or None
