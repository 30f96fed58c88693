"""Order statistics of measured samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(samples: Sequence[float], fraction: float) -> float | None:
    """The smallest sample that at least `fraction` of all samples do not exceed (nearest rank), or None without samples."""
    if not samples:
        return None
    rank = max(1, math.ceil(fraction * len(samples)))
    return sorted(samples)[rank - 1]


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones. Errors: ValueError without samples."""
    if not samples:
        raise ValueError("the median of no samples")
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
