"""A model's weights as the decoder wants them: named, checked, in half-split order, still in the file's own bytes.

The one idea: nothing is dequantised or copied here except what must be. q and k rows that GGUF interleaved are put back by
moving whole quantised rows; norms and biases, which are small, become float32; everything else is a view of the file.

    file rows of one Llama head   0 1 2 3 4 5 …        pairs are neighbours (2i, 2i + 1)
    half-split rows               0 2 4 … | 1 3 5 …    pairs are (i, i + dim/2), what the `rope` op rotates
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint, RawTensor
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType
from paceline.models.families import GGUF_NAMES, Family, TensorNames
from paceline.models.ops import Matrix, Vector
from paceline.models.spec import AttentionSpec, LayerSpec, ModelSpec

NOT_LINEAR = frozenset({TensorType.I8, TensorType.I16, TensorType.I32, TensorType.I64, TensorType.F64})

COMPUTED = ".rotary_emb.inv_freq"
"""Older folders store these numbers, which follow from the configuration."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weights of one layer; what a family does not have is None."""

    attention_norm: Vector
    qkv: Matrix
    """Parts q [H·D, E], k [G·D, E], v [G·D, E]."""
    qkv_bias: Vector | None
    q_norm: Vector | None
    k_norm: Vector | None
    o: Matrix
    o_bias: Vector | None
    attention_post_norm: Vector | None
    ffn_norm: Vector
    gate_up: Matrix
    """Parts gate [F, E], up [F, E]."""
    down: Matrix
    ffn_post_norm: Vector | None


@dataclass(frozen=True, slots=True, eq=False)
class ModelWeights:
    """All weights of a model; `head` is the very object `embedding` when they are tied."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    final_norm: Vector
    head: Matrix


def load_weights(checkpoint: Checkpoint, family: Family, spec: ModelSpec) -> ModelWeights:
    """The weights of a checkpoint, as views of its bytes. Errors: ModelError naming a tensor that is missing or misshaped"""
    return Loader(checkpoint, family, spec).load()


def half_split(tensor: RawTensor, attention: AttentionSpec) -> RawTensor:
    """Rows (or the numbers of a bias) of each head with neighbouring pairs moved to (i, i + dim/2); raw bytes, any type.

    Shapes:  (heads·D, K) or (heads·D,) → the same, new bytes
    """
    head_dim, dim = attention.head_dim, attention.rope.dim
    order = np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2), np.arange(dim, head_dim)])
    rows = tensor.data.reshape(tensor.shape[0] // head_dim, head_dim, -1)
    return replace(tensor, data=rows[:, order].reshape(-1))


class Loader:
    """Finds, checks and arranges the tensors of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, family: Family, spec: ModelSpec) -> None:
        self.checkpoint = checkpoint
        self.spec = spec
        self.used: set[str] = set()
        is_gguf = checkpoint.kind == "gguf"
        self.names = GGUF_NAMES if is_gguf else rooted(family.folder_names, checkpoint.tensor_names)
        self.is_interleaved = is_gguf and family.gguf_interleaves_rope
        self.norm_offset = 0.0 if is_gguf else family.folder_norm_offset

    def load(self) -> ModelWeights:
        """All weights. Errors: ModelError"""
        spec, names = self.spec, self.names
        embedding = Matrix("embedding", (self.rows(names.embedding, spec.vocab_size, spec.width),))
        head = embedding if spec.tied_head else Matrix("head", (self.rows(names.head, spec.vocab_size, spec.width),))
        layers = tuple(self.layer(index, layer) for index, layer in enumerate(spec.layers))
        self.refuse_unused()
        return ModelWeights(embedding, layers, self.norm("final_norm", names.final_norm, spec.width), head)

    def layer(self, index: int, spec: LayerSpec) -> LayerWeights:
        """The weights of one layer. Errors: ModelError"""
        names, width, attention = self.names, self.spec.width, spec.mixer
        prefix, label = names.layer.format(index), f"layers.{index}."
        q_width, ffn_width = attention.num_heads * attention.head_dim, spec.feed_forward.width

        def norm(name: str, size: int, is_there: bool) -> Vector | None:
            return self.norm(label + name, prefix + getattr(names, name), size) if is_there else None

        return LayerWeights(
            attention_norm=self.norm(label + "attention_norm", prefix + names.attention_norm, width),
            qkv=self.qkv(label, prefix, attention),
            qkv_bias=self.qkv_bias(label, prefix, attention) if attention.bias else None,
            q_norm=norm("q_norm", attention.head_dim, attention.qk_norm),
            k_norm=norm("k_norm", attention.head_dim, attention.qk_norm),
            o=Matrix(label + "o", (self.rows(prefix + names.o, width, q_width),)),
            o_bias=self.o_bias(label, prefix) if attention.output_bias else None,
            attention_post_norm=norm("attention_post_norm", width, spec.post_norms),
            ffn_norm=self.norm(label + "ffn_norm", prefix + names.ffn_norm, width),
            gate_up=Matrix(label + "gate_up", tuple(self.rows(prefix + name, ffn_width, width) for name in (names.gate, names.up))),
            down=Matrix(label + "down", (self.rows(prefix + names.down, width, ffn_width),)),
            ffn_post_norm=norm("ffn_post_norm", width, spec.post_norms),
        )

    def qkv(self, label: str, prefix: str, attention: AttentionSpec) -> Matrix:
        """q, k and v as one matrix, q and k in half-split order. Errors: ModelError"""
        parts = [self.rows(prefix + name, rows, self.spec.width) for name, rows in self.qkv_rows(attention)]
        return Matrix(label + "qkv", self.rotated(parts, attention))

    def qkv_bias(self, label: str, prefix: str, attention: AttentionSpec) -> Vector:
        """The biases of q, k and v as one vector, in the rows' order. Errors: ModelError"""
        parts = [self.tensor(f"{prefix}{name}.bias", (rows,)) for name, rows in self.qkv_rows(attention)]
        return Vector(label + "qkv_bias", np.concatenate([floats(part) for part in self.rotated(parts, attention)]))

    def qkv_rows(self, attention: AttentionSpec) -> tuple[tuple[str, int], ...]:
        """The names of q, k and v with their row counts."""
        kv_rows = attention.num_kv_heads * attention.head_dim
        return (self.names.q, attention.num_heads * attention.head_dim), (self.names.k, kv_rows), (self.names.v, kv_rows)

    def rotated(self, qkv: list[RawTensor], attention: AttentionSpec) -> tuple[RawTensor, ...]:
        """q, k, v with q and k in half-split order, whatever the file did."""
        q, k, v = qkv
        return (half_split(q, attention), half_split(k, attention), v) if self.is_interleaved else (q, k, v)

    def o_bias(self, label: str, prefix: str) -> Vector:
        """The output projection's bias. Errors: ModelError"""
        return Vector(label + "o_bias", floats(self.tensor(f"{prefix}{self.names.o}.bias", (self.spec.width,))))

    def norm(self, label: str, name: str, size: int) -> Vector:
        """A norm's gain, as the number that multiplies. Errors: ModelError"""
        return Vector(label, floats(self.tensor(f"{name}.weight", (size,))) + np.float32(self.norm_offset))

    def rows(self, name: str, num_rows: int, num_cols: int) -> RawTensor:
        """A linear layer's weight. Errors: ModelError when its type cannot be one"""
        tensor = self.tensor(f"{name}.weight", (num_rows, num_cols))
        if tensor.type in NOT_LINEAR:
            raise self.error(tensor.name, f"has the type {tensor.type.name}; expected a floating-point or quantised one")
        return tensor

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        """The raw tensor of that name and shape. Errors: ModelError with both shapes"""
        if name not in self.checkpoint.tensor_names:
            raise self.error(name, f"is missing; expected shape {list(shape)}")
        self.used.add(name)
        tensor = self.checkpoint.tensor(name)
        if tensor.shape != shape:
            raise self.error(name, f"has shape {list(tensor.shape)}; expected {list(shape)}")
        return tensor

    def refuse_unused(self) -> None:
        """Refuse a layer's tensor that no family's layer has: leaving it out would be another model. Errors: ModelError"""
        prefix = self.names.layer.partition("{")[0]
        for name in sorted(self.checkpoint.tensor_names - self.used):
            if name.startswith(prefix) and not name.endswith(COMPUTED):
                raise self.error(
                    name, f"is no part of `{self.spec.family}` with {len(self.spec.layers)} layers; expected none of that name"
                )

    def error(self, name: str, problem: str) -> ModelError:
        """The error for a tensor that cannot be used."""
        return ModelError(f"the tensor `{name}` {problem}.", path=self.checkpoint.path)


def rooted(names: TensorNames, tensor_names: frozenset[str]) -> TensorNames:
    """The folder names under the root that this folder uses: multimodal folders put the text model deeper.

    Two roots exist: `language_model.model.` with `language_model.lm_head`, and `model.language_model.` with `lm_head`.
    """
    for root, head in (("language_model.model.", "language_model.lm_head"), ("model.language_model.", "lm_head")):
        if f"{root}embed_tokens.weight" in tensor_names:
            under = {name: root + getattr(names, name).removeprefix("model.") for name in ("embedding", "final_norm", "layer")}
            return replace(names, head=head, **under)
    return names


def floats(tensor: RawTensor) -> npt.NDArray[np.float32]:
    """A small tensor as float32 in its shape."""
    return dequantize(tensor).reshape(tensor.shape)
