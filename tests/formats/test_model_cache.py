"""What the model folder holds, and when a file counts as whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from paceline.formats import model_cache
from paceline.formats.catalog import models_dir
from paceline.formats.model_cache import is_whole, list_models, record_verified, sha256_of, verified_sha256
from tests.generators.safetensors_folders import write_folder

CONTENT = b"some bytes of a model"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    return models_dir()


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_verified_file_is_not_hashed_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(models / "m.gguf")
    assert is_whole(path, SHA256)
    monkeypatch.setattr(model_cache, "sha256_of", None)
    assert is_whole(path, SHA256)
    assert is_whole(path, None)
    assert not is_whole(path, "0" * 64)


@pytest.mark.parametrize("change", ["time", "size"])
def test_a_changed_file_is_hashed_again(models: Path, change: str) -> None:
    path = put(models / "m.gguf")
    record_verified(path, SHA256)
    if change == "time":
        os.utime(path, ns=(1, 1))
    else:
        path.write_bytes(CONTENT + b"!")
    assert verified_sha256(path) is None
    assert is_whole(path, SHA256) == (change == "time")


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"size": 1}', b"\xff", b"9" * 10_000])
def test_a_broken_record_counts_as_none(models: Path, record: bytes) -> None:
    path = put(models / "m.gguf")
    put(models / "m.gguf.verified", record)
    assert verified_sha256(path) is None
    assert is_whole(path, SHA256)


def test_a_file_without_record_or_digest_is_not_known_to_be_whole(models: Path) -> None:
    assert not is_whole(put(models / "m.gguf"), None)
    assert not is_whole(models / "none.gguf", None)


def test_a_folder_that_cannot_be_written_keeps_no_record(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(models / "m.gguf")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    record_verified(path, sha256_of(path))
    assert verified_sha256(path) is None


def test_models_are_listed_by_the_name_that_finds_them(models: Path) -> None:
    put(models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    put(models / "SmolLM2-135M-Instruct.Q4_1.gguf.verified", b"{}")
    put(models / "mine.gguf")
    put(models / "half.gguf.part")
    for number in (1, 2):
        put(models / "org--repo" / "q4" / f"m-0000{number}-of-00002.gguf")
    write_folder(models / "org--weights")
    weights_bytes = (models / "org--weights" / "model.safetensors").stat().st_size
    assert [(model.name, model.size_bytes, model.in_catalog) for model in list_models()] == [
        ("mine.gguf", len(CONTENT), False),
        ("org/repo:q4/m-00001-of-00002.gguf", 2 * len(CONTENT), False),
        ("org/weights", weights_bytes, False),
        ("smollm2:135m", len(CONTENT), True),
    ]


def test_no_folder_means_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "none"))
    assert list_models() == []
