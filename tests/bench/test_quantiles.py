"""Quantiles are nearest-rank: always a sample that was measured."""

from __future__ import annotations

import pytest

from paceline.bench.quantiles import median, quantile


def test_quantile_is_the_smallest_sample_that_covers_the_fraction() -> None:
    samples = list(range(100, 0, -1))
    assert [quantile(samples, fraction) for fraction in (0.0, 0.01, 0.5, 0.99, 1.0)] == [1, 1, 50, 99, 100]
    assert quantile([7.0], 0.99) == 7.0


def test_quantile_of_nothing_is_none() -> None:
    assert quantile([], 0.5) is None


def test_median_of_an_even_number_is_between() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    with pytest.raises(ValueError, match="no samples"):
        median([])
