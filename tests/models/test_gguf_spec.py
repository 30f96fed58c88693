"""GGUF metadata → `ModelSpec`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.models.load import read_spec
from paceline.models.spec import Activation, FrequencyFactors, LinearScaling, RopeSpec
from tests.generators.tiny_models import tiny_model
from tests.models.memory_checkpoint import float_tensor, gguf_checkpoint

LLAMA = gguf_checkpoint(tiny_model("llama"))
GEMMA = gguf_checkpoint(tiny_model("gemma3"))


def test_llama_is_read_as_written() -> None:
    spec = read_spec(LLAMA)
    attention = spec.layers[0].mixer
    assert (spec.family, spec.width, len(spec.layers), spec.max_positions, spec.embedding_scale) == ("llama", 64, 2, 2048, 1.0)
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim, attention.scale) == (4, 2, 16, 0.25)
    assert (attention.rope, attention.window, attention.bias) == (RopeSpec(16, 10_000.0), None, False)
    assert (spec.layers[0].feed_forward.width, spec.layers[0].feed_forward.activation) == (96, Activation.SILU)
    assert spec.norm_eps == 1e-5


def test_head_is_tied_when_there_is_no_output_tensor() -> None:
    assert not read_spec(LLAMA).tied_head
    assert read_spec(LLAMA.without("output.weight")).tied_head


def test_gemma_sees_a_window_in_five_layers_of_six() -> None:
    layers = [layer.mixer for layer in read_spec(GEMMA).layers]
    assert [layer.window for layer in layers] == [8, 8, 8, 8, 8, None, 8]
    assert [layer.rope.theta for layer in layers] == [1e4] * 5 + [1e6, 1e4]


def test_gemma_scales_only_full_attention() -> None:
    layers = read_spec(GEMMA.having(gemma3__rope__scaling__type="linear", gemma3__rope__scaling__factor=8.0)).layers
    assert [layer.mixer.rope.scaling for layer in layers] == [None] * 5 + [LinearScaling(8.0), None]


def test_gemma_embedding_scale_is_the_float32_root_of_the_width() -> None:
    assert read_spec(GEMMA).embedding_scale == float(np.float32(math.sqrt(64)))


def test_gemma_27b_scales_scores_by_the_width_per_head() -> None:
    large = GEMMA.having(gemma3__block_count=62, gemma3__attention__head_count=8)
    assert read_spec(large).layers[0].mixer.scale == pytest.approx((64 / 8) ** -0.5)


def test_qwen2_has_biases_on_q_k_v_alone() -> None:
    attention = read_spec(gguf_checkpoint(tiny_model("qwen2"))).layers[0].mixer
    assert (attention.bias, attention.output_bias, attention.qk_norm) == (True, False, False)


def test_biases_of_llama_are_seen_by_their_tensors() -> None:
    attention = read_spec(gguf_checkpoint(tiny_model("llama", has_attention_bias=True))).layers[0].mixer
    assert (attention.bias, attention.output_bias) == (True, True)


def test_frequency_tensor_becomes_factors() -> None:
    checkpoint = LLAMA.with_tensor(float_tensor("rope_freqs.weight", np.arange(1, 9, dtype=np.float32)))
    assert read_spec(checkpoint).layers[0].mixer.rope.scaling == FrequencyFactors((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))


@pytest.mark.parametrize("values", [[1.0] * 7, [0.0] * 8, [float("nan")] * 8])
def test_frequency_tensor_of_wrong_numbers_is_refused(values: list[float]) -> None:
    checkpoint = LLAMA.with_tensor(float_tensor("rope_freqs.weight", np.array(values, np.float32)))
    with pytest.raises(ModelError, match=r"`rope_freqs\.weight`"):
        read_spec(checkpoint)


@pytest.mark.parametrize(
    ("metadata", "scaling"),
    [
        ({"llama__rope__scaling__type": "none"}, None),
        ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}, LinearScaling(4.0)),
        ({"llama__rope__scale_linear": 2.0}, LinearScaling(2.0)),
        ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 1.0}, None),
    ],
)
def test_rope_scaling_is_read_in_every_spelling(metadata: dict[str, MetaValue], scaling: LinearScaling | None) -> None:
    assert read_spec(LLAMA.having(**metadata)).layers[0].mixer.rope.scaling == scaling


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general__architecture": "mamba"}, "`mamba` is not supported; expected one of `llama`, `qwen2`, `gemma3`"),
        ({"general__architecture": None}, r"`general\.architecture` is missing"),
        ({"llama__block_count": 0}, r"`llama\.block_count` is '0'"),
        ({"llama__block_count": None}, r"`llama\.block_count` is missing"),
        ({"llama__block_count": 2**40}, r"`llama\.block_count`"),
        ({"llama__embedding_length": -1}, r"`llama\.embedding_length`"),
        ({"llama__attention__head_count": 3}, "cannot be split evenly over 3 heads"),
        ({"llama__attention__head_count_kv": 3}, "4 heads cannot share 3 key-value heads"),
        ({"llama__attention__head_count_kv": 8}, r"from 1 to 4"),
        ({"llama__attention__key_length": 15, "llama__attention__value_length": 15, "llama__rope__dimension_count": 8}, "odd"),
        ({"llama__attention__value_length": 8}, r"`llama\.attention\.value_length`"),
        ({"llama__rope__dimension_count": 7}, "rotated width 7 is odd"),
        ({"llama__rope__dimension_count": 32}, r"`llama\.rope\.dimension_count`"),
        ({"llama__rope__freq_base": float("nan")}, r"`llama\.rope\.freq_base`"),
        ({"llama__rope__scaling__type": "yarn", "llama__rope__scaling__factor": 4.0}, "is 'yarn'; expected `none` or `linear`"),
        ({"llama__rope__scaling__type": "linear"}, r"`llama\.rope\.scaling\.factor`"),
        ({"llama__attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon` is missing"),
        ({"llama__expert_count": 8}, "mixtures of experts"),
        ({"llama__context_length": 0}, r"`llama\.context_length`"),
    ],
)
def test_metadata_that_cannot_be_is_refused_by_name(metadata: dict[str, MetaValue], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_spec(LLAMA.having(**metadata))


def test_gemma_without_its_window_is_refused() -> None:
    with pytest.raises(ModelError, match=r"sliding_window` is missing"):
        read_spec(GEMMA.having(gemma3__attention__sliding_window=None))


def test_missing_embedding_is_refused() -> None:
    with pytest.raises(ModelError, match=r"`token_embd\.weight` is missing"):
        read_spec(LLAMA.without("token_embd.weight"))
