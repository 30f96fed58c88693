"""The catalog's table makes sense, and near names are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.formats.catalog import CATALOG, DEFAULT_MODEL, HubFile, name_of_file, near_matches
from paceline.formats.hub import parse_hub_name
from paceline.formats.model_cache import sha256_of


def test_every_entry_can_be_had_and_checked() -> None:
    assert DEFAULT_MODEL in CATALOG
    for name, entry in CATALOG.items():
        assert entry.name == name == name.lower()
        assert entry.sources
        assert entry.file_name.endswith(".gguf")
        assert entry.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
        assert name_of_file(entry.file_name) == name
        for source in entry.sources:
            assert not isinstance(source, HubFile) or parse_hub_name(source.repo) is not None
            # Without a digest of our own only the hub's listing can vouch for the file.
            assert entry.sha256 is not None or isinstance(source, HubFile)


def test_the_default_model_is_the_file_that_the_catalog_means(smollm2_path: Path) -> None:
    entry = CATALOG[DEFAULT_MODEL]
    assert smollm2_path.name == entry.file_name
    assert smollm2_path.stat().st_size == entry.size_bytes
    assert sha256_of(smollm2_path) == entry.sha256


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("smollm2", "smollm2:135m"),
        ("smollm:135m", "smollm2:135m"),
        ("SmolLM2-135M", "smollm2:135m"),
        ("gemma3", "gemma3:270m"),
        ("gemma-3:270m", "gemma3:270m"),
        ("qwen2.5-coder:3b", "qwen2.5-coder:0.5b"),
    ],
)
def test_a_near_name_is_recognised(typed: str, meant: str) -> None:
    assert meant in near_matches(typed)


@pytest.mark.parametrize("typed", ["", "gpt-9000-ultra", "x" * 10_000])
def test_a_far_name_is_not(typed: str) -> None:
    assert near_matches(typed) == []
