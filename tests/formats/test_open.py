"""Which container a path names, and what is said when it names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ModelError, NotFoundError
from paceline.formats.open import open_checkpoint
from tests.generators.gguf_files import write_sample, write_split_sample
from tests.generators.safetensors_folders import write_folder


def test_a_gguf_file_opens_whatever_its_name(tmp_path: Path) -> None:
    assert open_checkpoint(write_sample(tmp_path / "blob-without-suffix")).kind == "gguf"


def test_a_folder_of_one_gguf_file_opens(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    (tmp_path / "README.md").write_text("about")
    assert open_checkpoint(tmp_path).path == path


def test_a_folder_of_shards_opens_at_the_first(tmp_path: Path) -> None:
    paths = write_split_sample(tmp_path)
    assert open_checkpoint(tmp_path).path == paths[0]


def test_a_safetensors_folder_opens(tmp_path: Path) -> None:
    assert open_checkpoint(write_folder(tmp_path)).kind == "safetensors"


def test_a_folder_of_two_models_asks_which(tmp_path: Path) -> None:
    write_sample(tmp_path / "a.gguf")
    write_split_sample(tmp_path, "b")
    with pytest.raises(ModelError, match=r"holds 2 GGUF models \(`a\.gguf`, `b-00001-of-00002\.gguf`\); name one of them"):
        open_checkpoint(tmp_path)


def test_an_empty_folder_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expected a GGUF file, or a folder with one GGUF model or with `config\.json`"):
        open_checkpoint(tmp_path)


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="Pickled weights are never opened"):
        open_checkpoint(tmp_path)


def test_a_lone_safetensors_file_asks_for_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    with pytest.raises(ModelError, match="name its folder"):
        open_checkpoint(folder / "model.safetensors")


def test_a_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a few words, no model")
    with pytest.raises(ModelError, match=r"notes\.txt` at byte 0: the magic is b'a fe'; expected b'GGUF'"):
        open_checkpoint(tmp_path / "notes.txt")


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(ModelError, match="the file is empty"):
        open_checkpoint(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["none.gguf", "none/none", "x" * 5000])
def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises((NotFoundError, ModelError)):
        open_checkpoint(tmp_path / name)
