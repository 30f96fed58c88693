"""The angles of rotary embeddings: every kind of scaling becomes one table of inverse frequencies.

The one idea: scaling never reaches the kernels. Whatever a model says about its context extension ends in `dim / 2` numbers;
position p rotates pair i by p · inverse_frequencies[i].

It does not rotate anything: that is the `rope` op.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.models.spec import FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec

F64 = npt.NDArray[np.float64]


def inverse_frequencies(spec: RopeSpec) -> F64:
    """Radians per position of each pair.

    Shapes:  [dim / 2]
    Source:  Su et al. 2021 (arXiv:2104.09864) §3.2.2; the scalings name theirs in `spec`
    """
    plain = spec.theta ** (-np.arange(0, spec.dim, 2, dtype=np.float64) / spec.dim)
    match spec.scaling:
        case None:
            return plain
        case LinearScaling(factor):
            return plain / factor
        case FrequencyFactors(factors):
            return plain / np.asarray(factors, np.float64)
        case Llama3Scaling() as scaling:
            return plain / llama3_factors(plain, scaling)


def llama3_factors(frequencies: F64, scaling: Llama3Scaling) -> F64:
    """The divisor of each inverse frequency: 1 for short waves, `factor` for long ones, a smooth blend between."""
    rotations = scaling.original_max_positions * frequencies / (2 * math.pi)
    blend = (rotations - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = np.clip(blend, 0.0, 1.0)
    return 1.0 / ((1.0 - kept) / scaling.factor + kept)
