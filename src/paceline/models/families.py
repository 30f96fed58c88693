"""The families that Paceline knows, as one table: a new family of known parts is one entry here.

The one idea: families differ by facts, not by code. An entry says what metadata leaves unsaid (activation, norms, window
pattern), how each container names the tensors, and what each container did to the numbers (GGUF re-orders Llama's q and k
rows; Hugging Face folders store Gemma's norm gains minus one).

It reads nothing: `gguf_spec` and `config_spec` turn metadata into a `ModelSpec`, `weights` turns tensors into matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint, MetaValue
from paceline.models.spec import Activation


@dataclass(frozen=True, slots=True)
class TensorNames:
    """How a container names the tensors; names of a layer go behind `layer`, and take `.weight` or `.bias`."""

    embedding: str
    final_norm: str
    head: str
    layer: str
    attention_norm: str
    q: str
    k: str
    v: str
    q_norm: str
    k_norm: str
    o: str
    attention_post_norm: str
    ffn_norm: str
    gate: str
    up: str
    down: str
    ffn_post_norm: str


GGUF_NAMES = TensorNames(
    embedding="token_embd",
    final_norm="output_norm",
    head="output",
    layer="blk.{}.",
    attention_norm="attn_norm",
    q="attn_q",
    k="attn_k",
    v="attn_v",
    q_norm="attn_q_norm",
    k_norm="attn_k_norm",
    o="attn_output",
    attention_post_norm="post_attention_norm",
    ffn_norm="ffn_norm",
    gate="ffn_gate",
    up="ffn_up",
    down="ffn_down",
    ffn_post_norm="post_ffw_norm",
)

FOLDER_NAMES = TensorNames(
    embedding="model.embed_tokens",
    final_norm="model.norm",
    head="lm_head",
    layer="model.layers.{}.",
    attention_norm="input_layernorm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    o="self_attn.o_proj",
    attention_post_norm="post_attention_layernorm",
    ffn_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    ffn_post_norm="post_feedforward_layernorm",
)


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """Layers with a sliding window, every `full_every`-th with full attention; windowed layers rotate with `local_theta`."""

    full_every: int
    local_theta: float


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture: what it is called, what its metadata leaves unsaid, and what its containers did to the numbers.

    `config_defaults` are the values of `config.json` that folders of this family leave out.
    """

    name: str
    """GGUF's `general.architecture`."""
    model_types: tuple[str, ...]
    """`model_type` in `config.json`."""
    activation: Activation
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    scaled_embedding: bool = False
    """Embedding rows are multiplied by sqrt(E), rounded to f32."""
    windows: WindowPattern | None = None
    gguf_interleaves_rope: bool = False
    """GGUF stores q and k rows so that rotated pairs are neighbours (2i, 2i + 1)."""
    folder_norm_offset: float = 0.0
    """What a folder's norm gains lack."""
    folder_names: TensorNames = FOLDER_NAMES
    config_defaults: Mapping[str, MetaValue] = field(default_factory=lambda: MappingProxyType({}))


FAMILIES = (
    Family(
        name="llama",
        model_types=("llama",),
        activation=Activation.SILU,
        gguf_interleaves_rope=True,
    ),
    Family(
        name="qwen2",
        model_types=("qwen2",),
        activation=Activation.SILU,
        qkv_bias=True,
    ),
    Family(
        name="gemma3",
        model_types=("gemma3_text", "gemma3"),
        activation=Activation.GELU_TANH,
        qk_norm=True,
        post_norms=True,
        scaled_embedding=True,
        windows=WindowPattern(full_every=6, local_theta=10_000.0),
        folder_norm_offset=1.0,
        folder_names=replace(FOLDER_NAMES, ffn_norm="pre_feedforward_layernorm"),
        # Source: transformers Gemma3TextConfig; the published multimodal folders rely on these
        config_defaults=MappingProxyType(
            {
                "vocab_size": 262_208,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "query_pre_attn_scalar": 256,
                "sliding_window": 4096,
                "max_position_embeddings": 131_072,
                "rope_theta": 1_000_000.0,
                "tie_word_embeddings": True,
            }
        ),
    ),
)


def find_family(checkpoint: Checkpoint) -> Family:
    """The family that a checkpoint says it is. Errors: ModelError listing the known families"""
    key = "general.architecture" if checkpoint.kind == "gguf" else "model_type"
    name = checkpoint.metadata.get(key)
    for family in FAMILIES:
        known = (family.name,) if checkpoint.kind == "gguf" else family.model_types
        if name in known:
            return family
    names = ", ".join(f"`{n}`" for f in FAMILIES for n in ((f.name,) if checkpoint.kind == "gguf" else f.model_types))
    found = f"`{key}` is missing" if name is None else f"the architecture `{str(name)[:80]}` is not supported"
    raise ModelError(f"{found}; expected one of {names}.", path=checkpoint.path)
