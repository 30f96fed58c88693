"""The forward pass of every decoder-only model, written once.

The one idea: a model is ordinary Python against `Ops`; what differs between families is read from the spec, and what differs
between machines is behind `ops`. Calling `forward` with the NumPy ops computes logits, calling it with the recorder writes a
program.

It knows nothing of quantisation, devices, batches or where sequences keep their keys and values.
"""

from __future__ import annotations

from paceline.models.ops import A, Ops
from paceline.models.spec import LayerSpec, ModelSpec
from paceline.models.weights import LayerWeights, ModelWeights


def forward(ops: Ops[A], spec: ModelSpec, weights: ModelWeights) -> A:
    """The logits of the step's rows.

    Shapes:  → [R, V] f32
    """
    x = ops.embed(weights.embedding, ops.token_ids, spec.embedding_scale)
    for index, (layer, layer_weights) in enumerate(zip(spec.layers, weights.layers, strict=True)):
        x = ops.add(x, mix(ops, spec, layer, layer_weights, x, index))
        x = ops.add(x, feed_forward(ops, spec, layer, layer_weights, x))
    rows = ops.gather_rows(x, ops.row_indices)
    logits = ops.linear(ops.rms_norm(rows, weights.final_norm, spec.norm_eps), weights.head)
    return logits if spec.final_softcap is None else ops.softcap(logits, spec.final_softcap)


def mix(ops: Ops[A], spec: ModelSpec, layer: LayerSpec, weights: LayerWeights, x: A, index: int) -> A:
    """What the tokens of a sequence learn from each other: attention. Shapes: [T, E] → [T, E]"""
    attention = layer.mixer
    q_width, kv_width = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    normed = ops.rms_norm(x, weights.attention_norm, spec.norm_eps)
    q, k, v = ops.split(ops.linear(normed, weights.qkv, weights.qkv_bias), (q_width, kv_width, kv_width))
    if weights.q_norm is not None and weights.k_norm is not None:
        q = ops.head_norm(q, weights.q_norm, spec.norm_eps)
        k = ops.head_norm(k, weights.k_norm, spec.norm_eps)
    q = ops.rope(q, ops.positions, attention.rope, attention.head_dim)
    k = ops.rope(k, ops.positions, attention.rope, attention.head_dim)
    mixed = ops.linear(ops.attention(q, k, v, index, attention), weights.o, weights.o_bias)
    return mixed if weights.attention_post_norm is None else ops.rms_norm(mixed, weights.attention_post_norm, spec.norm_eps)


def feed_forward(ops: Ops[A], spec: ModelSpec, layer: LayerSpec, weights: LayerWeights, x: A) -> A:
    """What each token thinks on its own: the gated feed-forward. Shapes: [T, E] → [T, E]"""
    normed = ops.rms_norm(x, weights.ffn_norm, spec.norm_eps)
    hidden = ops.gated(ops.linear(normed, weights.gate_up), layer.feed_forward.activation)
    thought = ops.linear(hidden, weights.down)
    return thought if weights.ffn_post_norm is None else ops.rms_norm(thought, weights.ffn_post_norm, spec.norm_eps)
