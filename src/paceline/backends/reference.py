"""The reference backend: a model in NumPy, slow and right.

The one idea: two modes of one code. `exact` computes in float64 throughout: what the weights mean. With
`quantizes_activations` it rounds where the native core rounds (activations entering quantised linear layers to int8 per 32
channels, keys and values to float16) and nowhere else, so that native results must agree to float32 accuracy.

It owns its keys and values as one array per layer and keeps them where the step's block tables say.
"""

from __future__ import annotations

import numpy as np

from paceline.backends.base import BLOCK_SIZE, F32, I32, Draws, PoolShape, StepInput, StepOutput
from paceline.backends.reference_ops import LayerCache, ReferenceOps
from paceline.backends.reference_weights import LinearWeights
from paceline.models.decoder import forward
from paceline.models.load import Model
from paceline.models.spec import LayerSpec
from paceline.sampling import draw


class ReferenceBackend:
    """Runs steps of one model in NumPy; the oracle of parity tests, and an engine backend for small models."""

    def __init__(self, model: Model, pool: PoolShape, *, quantized_activations: bool = False) -> None:
        self._model = model
        self._mode = "quantized_activations" if quantized_activations else "exact"
        self._kv_dtype = np.float16 if quantized_activations else np.float64
        self._linears = LinearWeights(quantizes_activations=quantized_activations)
        self._caches = tuple(self._layer_cache(layer, pool) for layer in model.spec.layers)

    @property
    def name(self) -> str:
        """`reference:exact` or `reference:quantized_activations`."""
        return f"reference:{self._mode}"

    @property
    def numerics(self) -> str:
        """The mode decides the bits."""
        return f"{self.name}/1"

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._model.spec.vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of keys and values of 16 tokens over all layers."""
        return sum(cache.keys[0].nbytes + cache.values[0].nbytes for cache in self._caches)

    def forward(self, step: StepInput) -> StepOutput:
        """Advance every slice of the step."""
        assert step.block_tables.shape[0] == 1, "all layers are one group"
        self._copy_blocks(step.copies)
        ops = ReferenceOps(step, self._linears, self._caches)
        logits = forward(ops, self._model.spec, self._model.weights).astype(np.float32)
        return StepOutput(picks=self.pick(logits, step.draws), logits=logits if step.needs_logits else None)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """Pick from logits. Shapes: [R, V] → [R]"""
        return draw.pick(logits, draws)

    def close(self) -> None:
        """Nothing is held that garbage collection does not free."""

    def _layer_cache(self, layer: LayerSpec, pool: PoolShape) -> LayerCache:
        shape = (pool.num_blocks, BLOCK_SIZE, layer.mixer.num_kv_heads, layer.mixer.head_dim)
        return LayerCache(np.zeros(shape, self._kv_dtype), np.zeros(shape, self._kv_dtype))

    def _copy_blocks(self, copies: I32) -> None:
        """All sources are read before any target is written, so that the order of the copies cannot matter."""
        sources, targets = copies[:, 0], copies[:, 1]
        for cache in self._caches:
            cache.keys[targets] = cache.keys[sources]
            cache.values[targets] = cache.values[sources]
