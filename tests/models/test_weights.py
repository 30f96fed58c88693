"""Weights: found, checked, in half-split order, and not copied where nothing moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import ModelError
from paceline.formats.checkpoint import RawTensor
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType
from paceline.models.load import load_model
from paceline.models.spec import AttentionSpec, RopeSpec
from paceline.models.weights import half_split
from tests.generators.tiny_models import float_weights, random_blocks, tiny_model
from tests.models.memory_checkpoint import MemoryCheckpoint, float_tensor, gguf_checkpoint

TINY = tiny_model("llama", has_attention_bias=True)
CHECKPOINT = gguf_checkpoint(TINY)


def attention(head_dim: int, rope_dim: int) -> AttentionSpec:
    """Attention of these widths."""
    return AttentionSpec(2, 2, head_dim, RopeSpec(rope_dim, 1e4), 1.0)


def numbered(rows: int) -> RawTensor:
    """A bias that holds its own indices."""
    return float_tensor("bias", np.arange(rows, dtype=np.float32))


def test_half_split_puts_neighbours_half_a_head_apart() -> None:
    assert dequantize(half_split(numbered(16), attention(8, 8))).tolist() == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


def test_half_split_leaves_channels_that_do_not_rotate() -> None:
    assert dequantize(half_split(numbered(16), attention(8, 4))).tolist() == [0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("kind", [TensorType.Q4_0, TensorType.Q6_K, TensorType.BF16])
def test_half_split_moves_quantised_rows_whole(kind: TensorType) -> None:
    shape = (16, 256)
    data = random_blocks(kind, shape, 1.0, np.random.default_rng(0)) if kind.is_quantised else np.random.default_rng(0).bytes(16 * 512)
    tensor = RawTensor("q", kind, shape, np.frombuffer(data, np.uint8))
    order = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]
    assert np.array_equal(dequantize(half_split(tensor, attention(8, 8))), dequantize(tensor)[order], equal_nan=True)


def test_llama_rows_and_biases_come_back_in_the_folders_order() -> None:
    layer, expected = load_model(CHECKPOINT).weights.layers[1], float_weights(TINY)
    for part, name in zip(layer.qkv.parts, ("q_proj", "k_proj", "v_proj"), strict=True):
        assert np.array_equal(dequantize(part), expected[f"model.layers.1.self_attn.{name}.weight"])
    assert layer.qkv_bias is not None
    biases = [expected[f"model.layers.1.self_attn.{name}.bias"] for name in ("q_proj", "k_proj", "v_proj")]
    assert np.array_equal(layer.qkv_bias.data, np.concatenate(biases))


def test_what_does_not_move_is_not_copied() -> None:
    weights = load_model(CHECKPOINT).weights
    layer = weights.layers[0]
    for part, name in (
        (weights.embedding.parts[0], "token_embd.weight"),
        (weights.head.parts[0], "output.weight"),
        (layer.qkv.parts[2], "blk.0.attn_v.weight"),
        (layer.o.parts[0], "blk.0.attn_output.weight"),
        (layer.gate_up.parts[0], "blk.0.ffn_gate.weight"),
        (layer.gate_up.parts[1], "blk.0.ffn_up.weight"),
        (layer.down.parts[0], "blk.0.ffn_down.weight"),
    ):
        assert part is CHECKPOINT.tensors[name]


def test_tied_head_is_the_embedding_itself() -> None:
    weights = load_model(CHECKPOINT.without("output.weight")).weights
    assert weights.head is weights.embedding


def test_matrix_counts_the_rows_of_all_parts() -> None:
    qkv = load_model(CHECKPOINT).weights.layers[0].qkv
    assert (qkv.num_rows, qkv.num_cols) == (64 + 32 + 32, 64)


def test_gemma_gains_of_a_gguf_are_those_of_the_folder_plus_one() -> None:
    tiny = tiny_model("gemma3")
    layer = load_model(gguf_checkpoint(tiny)).weights.layers[0]
    expected = float_weights(tiny)["model.layers.0.self_attn.q_norm.weight"] + np.float32(1)
    assert layer.q_norm is not None
    assert np.array_equal(layer.q_norm.data, expected)


def refused(checkpoint: MemoryCheckpoint, message: str) -> None:
    """Loading says this."""
    with pytest.raises(ModelError, match=message):
        load_model(checkpoint)


@pytest.mark.parametrize("name", sorted(set(CHECKPOINT.tensors) - {"output.weight", "token_embd.weight"}))
def test_missing_tensor_is_named(name: str) -> None:
    refused(CHECKPOINT.without(name), f"the tensor `{name}` is missing; expected shape")


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight", "blk.0.ffn_up.bias"])
def test_tensor_that_the_forward_pass_would_ignore_is_refused(name: str) -> None:
    refused(CHECKPOINT.with_tensor(float_tensor(name, np.zeros(64, np.float32))), f"`{name}` is no part of `llama` with 2 layers")


def test_misshaped_tensor_is_named_with_both_shapes() -> None:
    wrong = float_tensor("blk.1.ffn_up.weight", np.zeros((95, 64), np.float32))
    refused(CHECKPOINT.with_tensor(wrong), r"`blk\.1\.ffn_up\.weight` has shape \[95, 64\]; expected \[96, 64\]")


def test_tensor_of_integers_is_refused_as_a_linear_layer() -> None:
    integers = replace(CHECKPOINT.tensors["blk.0.ffn_up.weight"], type=TensorType.I32)
    refused(CHECKPOINT.with_tensor(integers), "has the type I32")
