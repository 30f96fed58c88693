"""`config.json` → `ModelSpec`, in both generations of the file."""

from __future__ import annotations

import pytest

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.models.load import load_model, read_spec
from paceline.models.spec import LinearScaling, Llama3Scaling, RopeSpec
from tests.generators.tiny_models import tiny_model
from tests.models.memory_checkpoint import MemoryCheckpoint, folder_checkpoint

LLAMA_CONFIG: dict[str, MetaValue] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 2048,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
    "vocab_size": 262,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}


def llama(**changes: MetaValue) -> MemoryCheckpoint:
    """A Llama folder with these keys changed."""
    return folder_checkpoint(tiny_model("llama"), LLAMA_CONFIG).having(**changes)


def gemma(**changes: MetaValue) -> MemoryCheckpoint:
    """A Gemma 3 folder as published: most keys left to their defaults."""
    config: dict[str, MetaValue] = {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 262,
        "sliding_window": 8,
    }
    return folder_checkpoint(tiny_model("gemma3"), config).having(**changes)


def rope_of(checkpoint: MemoryCheckpoint, layer: int = 0) -> RopeSpec:
    """The rotation of one layer."""
    return read_spec(checkpoint).layers[layer].mixer.rope


@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_scaling_kind_is_read_as_type_and_as_rope_type(spelling: str) -> None:
    assert rope_of(llama(rope_scaling={spelling: "linear", "factor": 2.0})) == RopeSpec(16, 500.0, LinearScaling(2.0))


def test_scaling_of_llama3_is_read() -> None:
    assert rope_of(llama(rope_scaling={"rope_type": "llama3", **LLAMA3})).scaling == Llama3Scaling(8.0, 1.0, 4.0, 512)


def test_newer_rope_parameters_are_read() -> None:
    newer: MetaValue = {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0}
    assert rope_of(llama(rope_theta=None, rope_parameters=newer)) == RopeSpec(16, 700.0, LinearScaling(2.0))


def test_missing_theta_is_ten_thousand() -> None:
    assert rope_of(llama(rope_theta=None)) == RopeSpec(16, 10_000.0)


def test_older_gemma_names_its_local_theta_and_scales_full_attention() -> None:
    older = gemma(rope_local_base_freq=123.0, rope_theta=5000.0, rope_scaling={"factor": 8.0, "rope_type": "linear"})
    assert rope_of(older, 0) == RopeSpec(32, 123.0)
    assert rope_of(older, 5) == RopeSpec(32, 5000.0, LinearScaling(8.0))


def test_newer_gemma_has_rope_parameters_per_layer_type() -> None:
    newer = gemma(
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 123.0},
        }
    )
    assert rope_of(newer, 0) == RopeSpec(32, 123.0)
    assert rope_of(newer, 5) == RopeSpec(32, 5000.0, LinearScaling(8.0))


def test_gemma_has_the_published_defaults() -> None:
    spec = read_spec(gemma())
    assert spec.tied_head
    assert [layer.mixer.window for layer in spec.layers] == [8, 8, 8, 8, 8, None, 8]
    assert spec.layers[0].mixer.scale == 256**-0.5
    assert (rope_of(gemma(), 0).theta, rope_of(gemma(), 5).theta) == (1e4, 1e6)


def test_gemma_layer_types_win_over_the_pattern() -> None:
    kinds: list[MetaValue] = [*["full_attention", "sliding_attention"] * 3, "full_attention"]
    assert [layer.mixer.window for layer in read_spec(gemma(layer_types=kinds)).layers] == [None, 8] * 3 + [None]
    assert [layer.mixer.window for layer in read_spec(gemma(sliding_window_pattern=2)).layers] == [8, None] * 3 + [8]


@pytest.mark.parametrize("root", ["language_model.model.", "model.language_model."])
def test_multimodal_gemma_is_read_below_its_text_model(root: str) -> None:
    text = {**gemma().metadata, "model_type": "gemma3_text"}
    nested = folder_checkpoint(tiny_model("gemma3"), {"model_type": "gemma3", "text_config": text}, root)
    assert load_model(nested).spec == read_spec(gemma())


def test_qwen2_windows_start_at_the_named_layer() -> None:
    qwen = llama(model_type="qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1)
    assert [layer.mixer.window for layer in read_spec(qwen).layers] == [None, 32]
    unused = llama(model_type="qwen2", use_sliding_window=False, sliding_window=32, max_window_layers=1)
    assert [layer.mixer.window for layer in read_spec(unused).layers] == [None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_neox"}, "`gpt_neox` is not supported; expected one of `llama`, `qwen2`, `gemma3_text`, `gemma3`"),
        ({"hidden_size": None}, "`hidden_size` is missing"),
        ({"num_attention_heads": 0}, "`num_attention_heads`"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"hidden_act": "relu"}, "`hidden_act` is 'relu'; expected the activation of `llama`"),
        ({"mlp_bias": True}, "`mlp_bias` is 'True'; expected false"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling `yarn` is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "`factor` is missing"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3, "high_freq_factor": 1.0}}, "`high_freq_factor`"),
        ({"rope_scaling": "linear"}, "`rope_scaling` is 'linear'; expected an object"),
        ({"layer_types": ["full_attention"]}, "1 layer kinds for 2 layers"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "`layer_types`"),
        ({"text_config": 3}, "`text_config`"),
    ],
)
def test_config_that_cannot_be_served_is_refused_by_name(changes: dict[str, MetaValue], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_spec(llama(**changes))
