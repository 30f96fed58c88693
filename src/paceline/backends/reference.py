"""The reference backend: a model in NumPy, slow and right.

The one idea: two modes of one code. `exact` computes in float64 throughout: what the weights mean. With
`quantizes_activations` it rounds where the native core rounds (activations entering quantised linear layers to int8 per 32
channels; keys, values, queries and weights of attention to integers) and nowhere else, so that native results must agree to
float32 accuracy.

It owns its keys and values, one cache per layer, and keeps them where the step's block tables say.
"""

from __future__ import annotations

import numpy as np

from paceline.backends.base import F32, I32, Draws, KvDtype, PoolShape, StepInput, StepOutput
from paceline.backends.reference_kv import ExactCache, IntegerCache, LayerCache
from paceline.backends.reference_ops import ReferenceOps
from paceline.backends.reference_weights import LinearWeights
from paceline.models.decoder import forward
from paceline.models.load import Model
from paceline.models.spec import LayerSpec
from paceline.sampling import draw


class ReferenceBackend:
    """Runs steps of one model in NumPy; the oracle of parity tests, and an engine backend for small models."""

    def __init__(self, model: Model, pool: PoolShape, *, quantized_activations: bool = False, kv_dtype: KvDtype = "int16") -> None:
        """`kv_dtype` is for the mode that rounds."""
        self._model = model
        self._mode = "quantized_activations" if quantized_activations else "exact"
        self._kv_dtype: KvDtype | None = kv_dtype if quantized_activations else None
        self._linears = LinearWeights(quantizes_activations=quantized_activations)
        self._caches = tuple(self._layer_cache(layer, pool) for layer in model.spec.layers)

    @property
    def name(self) -> str:
        """`reference:exact` or `reference:quantized_activations`."""
        return f"reference:{self._mode}"

    @property
    def numerics(self) -> str:
        """The mode decides the bits."""
        return f"{self.name}/2:kv-{self._kv_dtype or 'exact'}"

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._model.spec.vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of keys and values of 16 tokens over all layers."""
        return sum(cache.bytes_per_block for cache in self._caches)

    def forward(self, step: StepInput) -> StepOutput:
        """Advance every slice of the step."""
        assert step.block_tables.shape[0] == 1, "all layers are one group"
        for cache in self._caches:
            cache.copy(step.copies[:, 0], step.copies[:, 1])
        ops = ReferenceOps(step, self._linears, self._caches)
        logits = forward(ops, self._model.spec, self._model.weights).astype(np.float32)
        return StepOutput(picks=self.pick(logits, step.draws), logits=logits if step.needs_logits else None)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """Pick from logits. Shapes: [R, V] → [R]"""
        return draw.pick(logits, draws)

    def close(self) -> None:
        """Nothing is held that garbage collection does not free."""

    def _layer_cache(self, layer: LayerSpec, pool: PoolShape) -> LayerCache:
        sizes = pool.num_blocks, layer.mixer.num_kv_heads, layer.mixer.head_dim
        return ExactCache.empty(*sizes) if self._kv_dtype is None else IntegerCache.empty(self._kv_dtype, *sizes)
