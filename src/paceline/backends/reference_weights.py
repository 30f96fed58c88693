"""Linear layers of the reference backend: dequantised weights, and activations quantised as the native core does it.

The one idea: a quantised linear layer is Σ over blocks of (activation scale · weight scale) · Σ q_w·q_a (+ minimum terms). That
is the plain product of the dequantised weights with the *rounded activations* scale·q_a. In float64 the integer products and
their sums are exact (below 2⁵³), so BLAS on float64 gives the same sums as integer arithmetic, and both modes share one path.

Weights are kept dequantised in float32 (four bytes a weight: 6 GB for 1.5 billion) and widened to float64 piece by piece on
their way into BLAS, which changes no value and, as the pieces stay in cache, is no slower than reading float64 from memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import RawTensor
from paceline.formats.quants import dequantize
from paceline.models.ops import Matrix

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]

QUANT_BLOCK = 32
"""Channels that share one activation scale (`kQuantBlock` in linear.h)."""
PIECE_ELEMENTS, MIN_PIECE_ROWS = 1 << 17, 64
"""Weights widened at a time: 1 MB of float64, a core's second-level cache, but enough rows for BLAS to tile."""


class LinearWeights:
    """The dequantised parts of every matrix that a model has multiplied by, kept once each."""

    def __init__(self, *, quantizes_activations: bool) -> None:
        self._quantizes_activations = quantizes_activations
        self._parts: dict[Matrix, tuple[F32, ...]] = {}

    def multiply(self, x: F64, weight: Matrix) -> F64:
        """x · weightᵀ. Shapes: [T, K], [N, K] → [T, N]"""
        if weight not in self._parts:
            self._parts[weight] = tuple(dequantize(part) for part in weight.parts)
        return np.concatenate(
            [product(self._entering(x, raw), part) for raw, part in zip(weight.parts, self._parts[weight], strict=True)], axis=1
        )

    def _entering(self, x: F64, part: RawTensor) -> F64:
        return rounded(x) if self._quantizes_activations and part.type.is_quantised else x


def product(x: F64, weight: F32) -> F64:
    """x · weightᵀ, accumulated in float64. Shapes: [T, K], [N, K] → [T, N]"""
    y = np.empty((len(x), len(weight)))
    step = max(MIN_PIECE_ROWS, PIECE_ELEMENTS // weight.shape[1])
    for start in range(0, len(weight), step):
        y[:, start : start + step] = x @ weight[start : start + step].astype(np.float64).T
    return y


def quantize_activations(x: F32) -> tuple[I8, F32]:
    """Activations as int8 with one scale per 32 channels, bit for bit as the native core's `quantize`.

    Shapes:  [T, K] → [T, K / 32, 32] i8, [T, K / 32] f32
    Source:  native/include/paceline/linear.h, contract of `QuantizeFn`
    """
    blocks = x.reshape(len(x), x.shape[1] // QUANT_BLOCK, QUANT_BLOCK)
    peaks = np.abs(blocks).max(axis=-1)
    scales = peaks / np.float32(127)
    inverses = np.divide(np.float32(127), peaks, out=np.zeros_like(peaks), where=peaks > 0)
    # np.rint rounds halves to even; the product stays float32
    return np.rint(blocks * inverses[..., None]).astype(np.int8), scales


def rounded(x: F64) -> F64:
    """What the native core computes with in place of x: each channel its int8 times its block's scale, exactly. Shapes: [T, K] → same"""
    quants, scales = quantize_activations(x.astype(np.float32))
    return (quants.astype(np.float64) * scales[..., None]).reshape(x.shape)
