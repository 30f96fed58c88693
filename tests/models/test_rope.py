"""Inverse frequencies under every scaling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.models.rope import inverse_frequencies
from paceline.models.spec import FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec


def test_plain_frequencies_fall_from_one_by_powers_of_theta() -> None:
    assert inverse_frequencies(RopeSpec(8, 10_000.0)) == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-14)


def test_linear_scaling_divides_every_frequency() -> None:
    assert inverse_frequencies(RopeSpec(4, 100.0, LinearScaling(8.0))) == pytest.approx([1 / 8, 1 / 80], rel=1e-14)


def test_frequency_factors_divide_pair_by_pair() -> None:
    assert inverse_frequencies(RopeSpec(4, 100.0, FrequencyFactors((2.0, 5.0)))) == pytest.approx([0.5, 0.02], rel=1e-14)


def test_llama3_scaling_keeps_short_waves_and_divides_long_ones() -> None:
    # Llama 3.1's own numbers: waves below 2,048 tokens are kept, above 8,192 divided by 8
    spec = RopeSpec(128, 500_000.0, Llama3Scaling(8.0, 1.0, 4.0, 8192))
    plain = inverse_frequencies(RopeSpec(128, 500_000.0))
    divisors = plain / inverse_frequencies(spec)
    waves = 2 * math.pi / plain
    assert divisors[waves < 2048] == pytest.approx(1.0, rel=1e-12)
    assert divisors[waves > 8192] == pytest.approx(8.0, rel=1e-12)
    between = divisors[(waves > 2048) & (waves < 8192)]
    assert len(between) >= 3
    assert np.all(np.diff(between) > 0)
    assert 1.0 < between[0] < between[-1] < 8.0
