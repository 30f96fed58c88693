"""How far two float32 computations of one model may lie apart, derived from its depth."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.models.spec import ModelSpec

EPSILON = float(np.finfo(np.float32).eps)
ROUNDINGS_PER_LAYER = 16
"""Float32 results that follow each other in a layer: two norms, seven products, rope, scores, softmax, mix, gate, two sums."""


def float32_tolerance(spec: ModelSpec) -> float:
    """The largest error of a logit, relative to the largest logit, that float32 arithmetic can explain.

    Roundings are independent, so they add up like a random walk: a dot product of K terms errs by eps · sqrt(K), and the results
    that follow each other through L layers, each passing its error on at about its own relative size, by sqrt of their number.
    """
    widest = max(spec.width, spec.layers[0].feed_forward.width)
    return EPSILON * math.sqrt(widest * (ROUNDINGS_PER_LAYER * len(spec.layers) + 2))


def relative_error(found: npt.NDArray[np.floating], expected: npt.NDArray[np.floating]) -> float:
    """The largest difference, relative to the largest expected value."""
    assert found.shape == expected.shape
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())
