"""Tiny random models of every family, from a seed: as a Hugging Face folder and as a GGUF file, with the same float weights.

The one idea: the weights are drawn once, under the folder's names and in the folder's order. The GGUF file is made from them by
the converter's published rules, written here a second time on purpose: a mistake in `paceline.models` cannot hide in both.

`tiny_gguf` brings a byte-level tokenizer and a ChatML template, so that its file can be served. Only `write_folder` needs
transformers (imported late: most tests want a GGUF in milliseconds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import RawTensor
from paceline.formats.gguf_writer import TensorSource, WritableValue, write_gguf
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType

F32 = npt.NDArray[np.float32]

LLAMA3_SCALING: dict[str, float] = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_SCALING: dict[str, float] = {"factor": 4.0}

MERGES = ("Ġ t", "h e", "Ġt he")
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NORMAL_TOKEN, CONTROL_TOKEN, UNUSED_TOKEN = 1, 3, 5


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What a tiny model looks like; `rope_scaling` is None, `linear` or `llama3`."""

    family: str
    vocab_size: int
    width: int = 64
    ffn_width: int = 96
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_positions: int = 2048
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: str | None = None
    window: int = 8
    is_tied: bool = False
    has_attention_bias: bool = False
    seed: int = 1


def tiny_model(family: str, *, block_size: int = 32, **changes: Any) -> TinyModel:
    """A tiny model of a family whose linear layers are whole blocks of `block_size` channels."""
    wide = {"width": 256, "ffn_width": 512, "head_dim": 64} if block_size > 32 else {}
    kinds: dict[str, dict[str, Any]] = {
        "llama": {"is_tied": False},
        "qwen2": {"is_tied": True, "rope_theta": 1e6, "norm_eps": 1e-6},
        # Six windowed layers and one full one in the middle; heads wider than E / H, as in the real ones
        "gemma3": {"is_tied": True, "num_layers": 7, "num_kv_heads": 1, "head_dim": 32, "rope_theta": 1e6, "norm_eps": 1e-6},
    }
    return TinyModel(family=family, **{"vocab_size": len(byte_tokens()), **kinds[family], **wide, **changes})


def tiny_gguf(
    path: Path,
    family: str,
    *,
    tensor_type: TensorType = TensorType.F32,
    with_tokenizer: bool = True,
    metadata: Mapping[str, WritableValue] | None = None,
    **changes: Any,
) -> Path:
    """Write a tiny random model of a family as one GGUF file, and return its path.

    `changes` are fields of `TinyModel` (vocab_size, seed, max_positions …); `metadata` is added last. Float types hold the
    folder's weights, quantised types hold random valid blocks of the same spread.
    """
    tiny = tiny_model(family, block_size=tensor_type.block_size, **changes)
    return write_gguf_of(tiny, path, tensor_type=tensor_type, with_tokenizer=with_tokenizer, metadata=metadata)


def write_gguf_of(
    tiny: TinyModel,
    path: Path,
    *,
    tensor_type: TensorType = TensorType.F32,
    types: Mapping[str, TensorType] | None = None,
    with_tokenizer: bool = True,
    metadata: Mapping[str, WritableValue] | None = None,
) -> Path:
    """Write one tiny model as a GGUF file; `types` overrides the type of linear layers by their GGUF name (`attn_v`)."""
    rng = np.random.default_rng(tiny.seed + 1000)
    tensors: dict[str, TensorSource] = {}
    for name, values in gguf_weights(tiny).items():
        role = name.removesuffix(".weight").rpartition(".")[2]
        kind = TensorType.F32 if values.ndim == 1 else (types or {}).get(role, tensor_type)
        tensors[name] = (kind, values.shape, encode(values, kind, rng))
    tokenizer = tokenizer_metadata(tiny.vocab_size) if with_tokenizer else {}
    write_gguf(path, {**gguf_metadata(tiny), **tokenizer, **(metadata or {})}, tensors)
    return path


def write_folder(tiny: TinyModel, path: Path) -> Path:
    """Write one tiny model as a Hugging Face folder (config.json, model.safetensors), and return it."""
    from safetensors.numpy import save_file

    path.mkdir(parents=True, exist_ok=True)
    transformers_config(tiny).save_pretrained(path)
    save_file(float_weights(tiny), path / "model.safetensors")
    return path


def transformers_config(tiny: TinyModel) -> Any:
    """The model's configuration as transformers spells it."""
    import transformers

    scaling: dict[str | None, dict[str, Any]] = {
        None: {"rope_type": "default"},
        "linear": {"rope_type": "linear", **LINEAR_SCALING},
        "llama3": {"rope_type": "llama3", **LLAMA3_SCALING},
    }
    rope: dict[str, Any] = {"rope_theta": tiny.rope_theta, **scaling[tiny.rope_scaling]}
    shared: dict[str, Any] = {
        "vocab_size": tiny.vocab_size,
        "hidden_size": tiny.width,
        "intermediate_size": tiny.ffn_width,
        "num_hidden_layers": tiny.num_layers,
        "num_attention_heads": tiny.num_heads,
        "num_key_value_heads": tiny.num_kv_heads,
        "max_position_embeddings": tiny.max_positions,
        "rms_norm_eps": tiny.norm_eps,
        "tie_word_embeddings": tiny.is_tied,
        "rope_parameters": rope,
    }
    if tiny.family == "llama":
        return transformers.LlamaConfig(**shared, head_dim=tiny.head_dim, attention_bias=tiny.has_attention_bias)
    if tiny.family == "qwen2":
        return transformers.Qwen2Config(**shared)
    local = {"rope_type": "default", "rope_theta": 10_000.0}
    shared["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    scalar: dict[str, Any] = {"head_dim": tiny.head_dim, "query_pre_attn_scalar": tiny.head_dim}
    return transformers.Gemma3TextConfig(**shared, **scalar, sliding_window=tiny.window)


def float_weights(tiny: TinyModel) -> dict[str, F32]:
    """The model's weights under the folder's names, in the folder's order."""
    rng = np.random.default_rng(tiny.seed)
    is_gemma = tiny.family == "gemma3"

    def linear(num_rows: int, num_cols: int) -> F32:
        return (rng.standard_normal((num_rows, num_cols)) / math.sqrt(num_cols)).astype(np.float32)

    def gain(size: int) -> F32:
        return (rng.normal(0.0, 0.2, size) + (0.0 if is_gemma else 1.0)).astype(np.float32)

    q_width, kv_width, width = tiny.num_heads * tiny.head_dim, tiny.num_kv_heads * tiny.head_dim, tiny.width
    weights = {"model.embed_tokens.weight": (rng.standard_normal((tiny.vocab_size, width)) / (8.0 if is_gemma else 2.0)).astype(np.float32)}
    for index in range(tiny.num_layers):
        layer = f"model.layers.{index}."
        linears = {
            "self_attn.q_proj": (q_width, width),
            "self_attn.k_proj": (kv_width, width),
            "self_attn.v_proj": (kv_width, width),
            "self_attn.o_proj": (width, q_width),
            "mlp.gate_proj": (tiny.ffn_width, width),
            "mlp.up_proj": (tiny.ffn_width, width),
            "mlp.down_proj": (width, tiny.ffn_width),
        }
        norms = {"input_layernorm": width, "post_attention_layernorm": width}
        if is_gemma:
            norms |= {"pre_feedforward_layernorm": width, "post_feedforward_layernorm": width}
            norms |= {"self_attn.q_norm": tiny.head_dim, "self_attn.k_norm": tiny.head_dim}
        weights |= {f"{layer}{name}.weight": linear(*shape) for name, shape in linears.items()}
        weights |= {f"{layer}{name}.weight": gain(size) for name, size in norms.items()}
        for name in biased(tiny):
            weights[f"{layer}{name}.bias"] = rng.normal(0.0, 0.5, linears[name][0]).astype(np.float32)
    weights["model.norm.weight"] = gain(width)
    if not tiny.is_tied:
        weights["lm_head.weight"] = linear(tiny.vocab_size, width) * np.float32(3.0)
    return weights


def biased(tiny: TinyModel) -> tuple[str, ...]:
    """The linear layers that have a bias."""
    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    if tiny.family == "qwen2":
        return qkv
    return (*qkv, "self_attn.o_proj") if tiny.has_attention_bias else ()


def gguf_weights(tiny: TinyModel) -> dict[str, F32]:
    """The model's weights as the GGUF converter stores them: renamed, Llama's rotated rows interleaved, Gemma's gains plus one."""
    renamed = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm" if tiny.family == "gemma3" else "ffn_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    weights: dict[str, F32] = {}
    for name, values in float_weights(tiny).items():
        stem, _, kind = name.rpartition(".")
        stored = interleaved(values, tiny.head_dim) if tiny.family == "llama" and stem.endswith(("q_proj", "k_proj")) else values
        if tiny.family == "gemma3" and stem.endswith("norm"):
            stored = values + np.float32(1.0)
        if stem in top:
            weights[f"{top[stem]}.{kind}"] = stored
        else:
            _, _, index, role = stem.split(".", 3)
            weights[f"blk.{index}.{renamed[role]}.{kind}"] = stored
    if tiny.rope_scaling == "llama3":
        weights["rope_freqs.weight"] = llama3_divisors(tiny)
    return weights


def interleaved(values: F32, head_dim: int) -> F32:
    """Rows of each head re-ordered from (i, i + D/2) pairs to neighbours."""
    halves = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def llama3_divisors(tiny: TinyModel) -> F32:
    """The divisors that a converter writes for Llama 3's scaling. Source: Llama 3.1 reference code, `apply_scaling`"""
    factor, low, high = LLAMA3_SCALING["factor"], LLAMA3_SCALING["low_freq_factor"], LLAMA3_SCALING["high_freq_factor"]
    original = LLAMA3_SCALING["original_max_position_embeddings"]
    divisors = []
    for pair in range(tiny.head_dim // 2):
        wave = 2 * math.pi * tiny.rope_theta ** (2 * pair / tiny.head_dim)
        smooth = (original / wave - low) / (high - low)
        if wave < original / high:
            divisors.append(1.0)
        elif wave > original / low:
            divisors.append(factor)
        else:
            divisors.append(1.0 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def gguf_metadata(tiny: TinyModel) -> dict[str, WritableValue]:
    """The architecture's keys, as the converter writes them."""
    family = tiny.family
    metadata: dict[str, WritableValue] = {
        "general.architecture": family,
        "general.name": f"Tiny {family}",
        f"{family}.block_count": tiny.num_layers,
        f"{family}.context_length": tiny.max_positions,
        f"{family}.embedding_length": tiny.width,
        f"{family}.feed_forward_length": tiny.ffn_width,
        f"{family}.attention.head_count": tiny.num_heads,
        f"{family}.attention.head_count_kv": tiny.num_kv_heads,
        f"{family}.attention.layer_norm_rms_epsilon": tiny.norm_eps,
        f"{family}.rope.freq_base": tiny.rope_theta,
    }
    if tiny.head_dim * tiny.num_heads != tiny.width:
        metadata |= {f"{family}.attention.key_length": tiny.head_dim, f"{family}.attention.value_length": tiny.head_dim}
    if family == "gemma3":
        metadata[f"{family}.attention.sliding_window"] = tiny.window
    else:
        metadata[f"{family}.rope.dimension_count"] = tiny.head_dim
    if tiny.rope_scaling == "linear":
        metadata |= {f"{family}.rope.scaling.type": "linear", f"{family}.rope.scaling.factor": LINEAR_SCALING["factor"]}
    return metadata


def byte_tokens() -> list[str]:
    """The vocabulary of a byte-level tokenizer with no room to spare: 256 bytes, a few merges, the control tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]
    return [*letters, *(merge.replace(" ", "") for merge in MERGES), *CONTROL_TOKENS]


def tokenizer_metadata(vocab_size: int) -> dict[str, WritableValue]:
    """The tokenizer's keys; tokens beyond the byte-level vocabulary are named but unused.

    Source: GPT-2's `bytes_to_unicode` for the letters of bytes
    """
    tokens = byte_tokens()
    if vocab_size < len(tokens):
        raise ValueError(f"a byte-level tokenizer needs {len(tokens)} tokens, not {vocab_size}")
    kinds = [CONTROL_TOKEN if token in CONTROL_TOKENS else NORMAL_TOKEN for token in tokens]
    num_unused = vocab_size - len(tokens)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens + [f"<|unused_{index}|>" for index in range(num_unused)],
        "tokenizer.ggml.token_type": np.array(kinds + [UNUSED_TOKEN] * num_unused, np.int32),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.padding_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML_TEMPLATE,
    }


def encode(values: F32, kind: TensorType, rng: np.random.Generator) -> bytes:
    """The bytes of a tensor: the values themselves in a float type, random blocks of the same spread in a quantised one."""
    match kind:
        case TensorType.F32 | TensorType.F16:
            return values.astype("<f4" if kind is TensorType.F32 else "<f2").tobytes()
        case TensorType.BF16:
            # Round to nearest, ties to even, as every converter does
            bits = values.view(np.uint32).astype(np.uint64)
            return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
        case _:
            return random_blocks(kind, values.shape, float(values.std()), rng)


HALF_FIELDS: dict[TensorType, tuple[tuple[int, float], ...]] = {
    TensorType.Q4_0: ((0, 1.0),),
    TensorType.Q4_1: ((0, 1.0), (2, -7.5)),
    TensorType.Q5_0: ((0, 1.0),),
    TensorType.Q5_1: ((0, 1.0), (2, -15.5)),
    TensorType.Q8_0: ((0, 1.0),),
    TensorType.Q2_K: ((80, 1.0), (82, 1.5)),
    TensorType.Q3_K: ((108, 1.0),),
    TensorType.Q4_K: ((0, 1.0), (2, 7.5)),
    TensorType.Q5_K: ((0, 1.0), (2, 15.5)),
    TensorType.Q6_K: ((208, 1.0),),
}
"""Where a block keeps its f16 numbers (byte, size relative to d): with these ratios the values centre on zero."""


def random_blocks(kind: TensorType, shape: tuple[int, ...], spread: float, rng: np.random.Generator) -> bytes:
    """Random bytes that are valid blocks: every integer field is drawn, the f16 scales vary by a third around what gives `spread`."""
    num_blocks = math.prod(shape) // kind.block_size
    blocks = rng.integers(0, 256, (num_blocks, kind.block_bytes), np.uint8)
    variation = rng.uniform(0.75, 1.33, num_blocks)
    set_scales(blocks, kind, variation)
    unit = dequantize(RawTensor("unit", kind, shape, blocks.reshape(-1))).std()
    set_scales(blocks, kind, variation * spread / float(unit))
    return blocks.tobytes()


def set_scales(blocks: npt.NDArray[np.uint8], kind: TensorType, scales: npt.NDArray[np.float64]) -> None:
    """Write each block's f16 numbers in place. Shapes: blocks [B, block_bytes], scales [B]"""
    for start, ratio in HALF_FIELDS[kind]:
        blocks[:, start : start + 2] = (scales * ratio).astype("<f2").view(np.uint8).reshape(-1, 2)
