"""Fixtures that every test may use: where the small real model lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.formats.catalog import CATALOG, DEFAULT_MODEL, models_dir


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's GGUF file; `make test` fetches it before the suite. Missing means failure, never a skip."""
    path = models_dir() / CATALOG[DEFAULT_MODEL].file_name
    assert path.exists(), f"{path} is missing; `make test` brings it (or run `paceline pull {DEFAULT_MODEL}`)"
    return path
