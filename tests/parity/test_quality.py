"""The default model says what its weights mean: next-token distributions against transformers, on real texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality import measure


def test_smollm2_is_as_close_to_float32_as_promised(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quality = measure(smollm2_path)
    with capsys.disabled():
        print(f"\n{quality.model} on {quality.backend}: KL {quality.mean_kl:.5f}, top-1 {quality.top1:.2%}, {quality.positions} positions")
    assert quality.positions >= 5000
    assert quality.mean_kl <= 0.008
    assert quality.top1 >= 0.96
    # The texts are ones that the model can read: a wrong oracle would agree with nothing, and read nothing
    assert quality.oracle_nll < 3.5
