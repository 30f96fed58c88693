"""Fixtures that every test may use: where the small real model lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import env

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's GGUF file; `make test` fetches it before the suite. Missing means failure, never a skip."""
    path = env.cache_dir() / "models" / SMOLLM2_FILE
    assert path.exists(), f"{path} is missing; `make test` brings it (or run `paceline pull smollm2:135m`)"
    return path
