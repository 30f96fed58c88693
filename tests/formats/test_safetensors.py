"""What a model folder gives, and what it says when its parts do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from paceline.errors import ModelError
from paceline.formats.safetensors import SafetensorsCheckpoint
from tests.generators.safetensors_folders import SHAPES, sample_data, sound_file, write_folder


@pytest.mark.parametrize("sharded", [False, True])
def test_a_folder_gives_config_side_files_and_tensors(tmp_path: Path, sharded: bool) -> None:
    checkpoint = SafetensorsCheckpoint(write_folder(tmp_path / "m", sharded=sharded))
    assert checkpoint.kind == "safetensors"
    assert checkpoint.path == tmp_path / "m"
    assert checkpoint.metadata == {"model_type": "llama", "rope_scaling": None, "eos_token_id": [1, 2]}
    assert checkpoint.files == {"tokenizer.json": tmp_path / "m" / "tokenizer.json"}
    assert checkpoint.tensor_names == frozenset(SHAPES)
    for name, content in sample_data().items():
        tensor = checkpoint.tensor(name)
        assert (tensor.name, tensor.type, tensor.shape) == (name, *SHAPES[name])
        assert tensor.data.tobytes() == content
        assert not tensor.data.flags.owndata


def test_we_read_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    arrays: dict[str, npt.NDArray[Any]] = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.ones((3, 1), np.float16),
        "scalar": np.array(2.5, np.float32),
    }
    safetensors.numpy.save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    checkpoint = SafetensorsCheckpoint(folder)
    for name, array in arrays.items():
        tensor = checkpoint.tensor(name)
        assert tensor.shape == array.shape
        np.testing.assert_array_equal(tensor.data.view(array.dtype).reshape(array.shape), array)


def test_the_safetensors_package_reads_our_generated_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    names = [name for name, (kind, _) in SHAPES.items() if kind.name != "BF16"]
    (folder / "sound.safetensors").write_bytes(sound_file(names, sample_data()))
    arrays = safetensors.numpy.load_file(folder / "sound.safetensors")
    assert {name: array.tobytes() for name, array in arrays.items()} == {name: sample_data()[name] for name in names}


def test_a_missing_tensor_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tensor `lm_head\.weight` among its 4"):
        SafetensorsCheckpoint(write_folder(tmp_path)).tensor("lm_head.weight")


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-00002.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path, sharded=True)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name}`: this file is missing"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1, "a": 2}', "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass"), "1" * 10_000]
)
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str | bytes) -> None:
    folder = write_folder(tmp_path)
    (folder / "config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ModelError, match=r"config\.json` at byte 0: .*expected"):
        SafetensorsCheckpoint(folder)


def rewrite_index(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("weight_map", [None, [], {}, "x"])
def test_an_index_without_a_weight_map_is_refused(tmp_path: Path, weight_map: object) -> None:
    folder = write_folder(tmp_path, sharded=True)
    rewrite_index(folder, weight_map)
    with pytest.raises(ModelError, match="there is no `weight_map`"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "pytorch_model.bin", "", 3, None])
def test_an_index_that_leads_elsewhere_is_refused(tmp_path: Path, name: object) -> None:
    folder = write_folder(tmp_path, sharded=True)
    rewrite_index(folder, {"w": name})
    with pytest.raises(ModelError, match=r"expected a `\.safetensors` file here"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("change", ["one too many", "one too few"])
def test_an_index_that_disagrees_with_its_files_is_refused(tmp_path: Path, change: str) -> None:
    folder = write_folder(tmp_path, sharded=True)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    if change == "one too many":
        weight_map["extra"] = "model-00001-of-00002.safetensors"
    else:
        del weight_map["model.norm.weight"]
    rewrite_index(folder, weight_map)
    with pytest.raises(ModelError, match=r"the index and this file disagree about tensor `(extra|model\.norm\.weight)`"):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", *SHAPES])
def test_the_digest_sees_each_part(tmp_path: Path, part: str) -> None:
    folder = write_folder(tmp_path)
    before = SafetensorsCheckpoint(folder).digest()
    assert before == SafetensorsCheckpoint(folder).digest()
    if part in SHAPES:
        contents = sample_data()
        contents[part] = bytes([contents[part][0] ^ 1]) + contents[part][1:]
        (folder / "model.safetensors").write_bytes(sound_file(list(SHAPES), contents))
    else:
        (folder / part).write_text('{"model_type": "qwen2"}')
    assert SafetensorsCheckpoint(folder).digest() != before
