"""Tokenizers that many tests here use."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.formats.open import open_checkpoint
from paceline.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    """The default model's tokenizer."""
    return load_tokenizer(open_checkpoint(smollm2_path))
