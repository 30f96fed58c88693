"""The float32 oracle of a quality run: transformers' own model, filled with a GGUF file's dequantised weights.

The one idea: nothing of what is being judged is reused. The tensors are renamed and Llama's rows put back here, by the
converter's published rules, and neither `paceline.models.weights` nor transformers' own GGUF reader takes part. Only the numbers
of the architecture come from our `ModelSpec`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from paceline.formats.checkpoint import Checkpoint
from paceline.formats.quants import dequantize
from paceline.models.spec import FrequencyFactors, LinearScaling, Llama3Scaling, ModelSpec, RopeSpec

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
MODEL_CLASSES: dict[str, Any] = {
    "llama": transformers.LlamaForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "gemma3": transformers.Gemma3ForCausalLM,
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def load_oracle(checkpoint: Checkpoint, spec: ModelSpec) -> Any:
    """transformers' model of a GGUF file, in float32, ready to run."""
    assert checkpoint.kind == "gguf", "the oracle reads GGUF files"
    progress: Any = transformers.utils.logging
    progress.disable_progress_bar()
    model: Any = MODEL_CLASSES[spec.family].from_pretrained(
        None, config=oracle_config(spec), state_dict=state_dict(checkpoint, spec), dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def oracle_config(spec: ModelSpec) -> Any:
    """The configuration in transformers' words."""
    mixers = [layer.mixer for layer in spec.layers]
    full = next((mixer for mixer in mixers if mixer.window is None), mixers[0])
    windowed = next((mixer for mixer in mixers if mixer.window is not None), None)
    shared: dict[str, Any] = {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.width,
        "intermediate_size": spec.layers[0].feed_forward.width,
        "num_hidden_layers": len(spec.layers),
        "num_attention_heads": full.num_heads,
        "num_key_value_heads": full.num_kv_heads,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tied_head,
        "rope_parameters": rope_parameters(full.rope),
    }
    match spec.family:
        case "llama":
            return transformers.LlamaConfig(**shared, head_dim=full.head_dim, attention_bias=full.bias)
        case "qwen2":
            return transformers.Qwen2Config(**shared)
        case "gemma3":
            assert windowed is not None
            shared["rope_parameters"] = {"full_attention": shared["rope_parameters"], "sliding_attention": rope_parameters(windowed.rope)}
            kinds = ["full_attention" if mixer.window is None else "sliding_attention" for mixer in mixers]
            heads: dict[str, Any] = {"head_dim": full.head_dim, "query_pre_attn_scalar": round(full.scale**-2)}
            return transformers.Gemma3TextConfig(**shared, **heads, layer_types=kinds, sliding_window=windowed.window)
        case _:
            raise NotImplementedError(spec.family)


def rope_parameters(rope: RopeSpec) -> dict[str, Any]:
    """A rotation in transformers' words."""
    match rope.scaling:
        case None:
            scaling: dict[str, Any] = {"rope_type": "default"}
        case LinearScaling(factor):
            scaling = {"rope_type": "linear", "factor": factor}
        case Llama3Scaling(factor, low, high, original):
            scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
            scaling["original_max_position_embeddings"] = original
        case FrequencyFactors():
            raise NotImplementedError("transformers has no explicit frequency factors")
    return {"rope_theta": rope.theta, **scaling}


def state_dict(checkpoint: Checkpoint, spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Every tensor dequantised, under the folder's name and in the folder's order."""
    return {folder_name(name, spec): torch.from_numpy(folder_values(name, checkpoint, spec)) for name in sorted(checkpoint.tensor_names)}


def folder_name(name: str, spec: ModelSpec) -> str:
    """The folder's name of a GGUF tensor."""
    stem, _, kind = name.rpartition(".")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    _, index, role = stem.split(".")
    names = LAYER_NAMES | GEMMA_NAMES if spec.family == "gemma3" else LAYER_NAMES
    return f"model.layers.{index}.{names[role]}.{kind}"


def folder_values(name: str, checkpoint: Checkpoint, spec: ModelSpec) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """A tensor's values as the folder holds them: Llama's q and k rows split in halves, Gemma's gains less one."""
    values = dequantize(checkpoint.tensor(name))
    if spec.family == "gemma3" and "norm" in name:
        return values - np.float32(1.0)
    if spec.family == "llama" and (".attn_q." in name or ".attn_k." in name):
        half = spec.layers[0].mixer.head_dim // 2
        pairs = values.reshape(-1, half, 2, *values.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))
    return values
