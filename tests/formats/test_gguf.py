"""What a sound GGUF model gives: metadata, tensors, shards, digest; and that it opens fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.errors import ModelError, NotFoundError
from paceline.formats.gguf import GgufCheckpoint, shard_paths
from paceline.formats.gguf_writer import write_gguf
from paceline.formats.types import TensorType
from tests.generators.gguf_files import SHAPES, sample_metadata, sample_tensors, write_sample, write_split_sample


def test_metadata_of_every_type_survives_the_file(tmp_path: Path) -> None:
    read = GgufCheckpoint(write_sample(tmp_path / "m.gguf")).metadata
    for key, value in sample_metadata().items():
        if key.startswith("array.") and key != "array.strings":
            stored = np.asarray(read[key])
            np.testing.assert_array_equal(stored, np.asarray(value))
            assert isinstance(read[key], np.ndarray)
        else:
            assert read[key] == value
            assert type(read[key]) in (bool, int, float, str, list)
    assert list(read) == list(sample_metadata())


def test_tensors_are_read_only_views_in_row_major_shape(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(write_sample(tmp_path / "m.gguf"))
    assert checkpoint.tensor_names == frozenset(SHAPES)
    for name, (kind, shape, data) in sample_tensors().items():
        tensor = checkpoint.tensor(name)
        assert (tensor.name, tensor.type, tensor.shape) == (name, kind, tuple(shape))
        np.testing.assert_array_equal(tensor.data, data)
        assert not tensor.data.flags.writeable
        assert not tensor.data.flags.owndata


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    reader = gguf.GGUFReader(write_sample(tmp_path / "m.gguf"))
    tensors = sample_tensors()
    assert [tensor.name for tensor in reader.tensors] == list(tensors)
    for theirs in reader.tensors:
        kind, shape, data = tensors[theirs.name]
        assert theirs.tensor_type.value == kind.value
        assert tuple(int(dim) for dim in reversed(theirs.shape)) == tuple(shape)
        np.testing.assert_array_equal(np.asarray(theirs.data).view(np.uint8).reshape(-1), data)
    assert reader.fields["general.name"].contents() == "Kürzel 🚲"
    assert reader.fields["array.i32"].contents() == [3, -1, 4]
    assert reader.fields["a.u64"].contents() == 1 << 63


def test_we_read_what_the_gguf_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc"])
    writer.add_tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = GgufCheckpoint(path)
    assert checkpoint.metadata["llama.block_count"] == 2
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == ["a", "bc"]
    tensor = checkpoint.tensor("w")
    assert tensor.shape == (2, 3)
    np.testing.assert_array_equal(tensor.data.view(np.float32), np.arange(6))


def test_a_custom_alignment_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for name in ("one", "two"):
        writer.add_tensor(name, np.full(3, len(name), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.testing.assert_array_equal(GgufCheckpoint(path).tensor("two").data.view(np.float32), [3, 3, 3])


def test_version_2_reads_as_version_3(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    content[4] = 2
    path.write_bytes(content)
    assert GgufCheckpoint(path).metadata["a.u32"] == 4_000_000_000


@pytest.mark.parametrize("named", [0, 1])
def test_a_split_model_opens_from_any_shard(tmp_path: Path, named: int) -> None:
    paths = write_split_sample(tmp_path)
    checkpoint = GgufCheckpoint(paths[named])
    assert checkpoint.path == paths[0]
    assert checkpoint.metadata["general.architecture"] == "llama"
    assert checkpoint.tensor_names == frozenset(SHAPES)
    for name, (_, _, data) in sample_tensors().items():
        np.testing.assert_array_equal(checkpoint.tensor(name).data, data)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = write_split_sample(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00002\.gguf.*shard is missing"):
        GgufCheckpoint(paths[0])


def test_shards_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    first, second = write_split_sample(tmp_path)
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    with pytest.raises(ModelError, match=r"`split\.no` is `1`; expected 0"):
        GgufCheckpoint(first)


def test_a_renamed_shard_says_what_name_it_needs(tmp_path: Path) -> None:
    first, _ = write_split_sample(tmp_path)
    alone = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match=r"`split\.count` is `2`, but the name says 1; expected shards named"):
        GgufCheckpoint(alone)


def test_shards_with_a_tensor_in_common_are_refused(tmp_path: Path) -> None:
    first, second = write_split_sample(tmp_path)
    split = {"split.no": np.uint16(1), "split.count": np.uint16(2)}
    write_gguf(second, split, dict(list(sample_tensors().items())[1:]))
    with pytest.raises(ModelError, match=r"`blk\.0\.attn_q\.weight` is also in"):
        GgufCheckpoint(first)


def test_shards_that_lost_a_tensor_are_refused(tmp_path: Path) -> None:
    first, second = write_split_sample(tmp_path)
    write_gguf(second, {"split.no": np.uint16(1), "split.count": np.uint16(2)}, dict(list(sample_tensors().items())[3:]))
    with pytest.raises(ModelError, match=r"`split\.tensors\.count` is `5`, but the shards hold 4 tensors"):
        GgufCheckpoint(first)


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-99999.gguf"])
def test_impossible_shard_numbers_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="expected shards 1 to at most"):
        shard_paths(Path(name))


def test_a_missing_tensor_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tensor `nope`"):
        GgufCheckpoint(write_sample(tmp_path / "m.gguf")).tensor("nope")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no file"):
        GgufCheckpoint(tmp_path / "none.gguf")


def test_the_digest_follows_content_not_name(tmp_path: Path) -> None:
    one = GgufCheckpoint(write_sample(tmp_path / "one.gguf")).digest()
    assert one == GgufCheckpoint(write_sample(tmp_path / "same.gguf")).digest()
    assert one != GgufCheckpoint(write_sample(tmp_path / "other.gguf", seed=2)).digest()
    assert len(one) == 32


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_digest_sees_each_tensor(tmp_path: Path, name: str) -> None:
    path = write_sample(tmp_path / "m.gguf")
    before = GgufCheckpoint(path).digest()
    start = GgufCheckpoint(path)._homes[name].tensors[name].start
    content = bytearray(path.read_bytes())
    content[start] ^= 1
    path.write_bytes(content)
    assert GgufCheckpoint(path).digest() != before


def test_a_file_that_changed_after_it_was_opened_has_no_digest(tmp_path: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    checkpoint = GgufCheckpoint(path)
    replacement = tmp_path / "longer"
    replacement.write_bytes(path.read_bytes() + b"more")
    replacement.rename(path)
    with pytest.raises(ModelError, match="changed after it was opened"):
        checkpoint.digest()


def least_time_s(work: Callable[[], object], repeats: int = 5) -> float:
    """The least processor time of several runs: what the code needs, not what the machine was busy with."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def test_the_default_model_opens_in_60_ms_and_digests_in_20(smollm2_path: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_path)
    assert least_time_s(lambda: GgufCheckpoint(smollm2_path)) < 0.060
    assert least_time_s(checkpoint.digest) < 0.020


def test_a_vocabulary_of_262144_tokens_opens_in_300_ms(tmp_path: Path) -> None:
    tokens = [f"token{number}" for number in range(262_144)]
    scores = np.arange(262_144, dtype=np.float32)
    path = tmp_path / "large.gguf"
    write_gguf(path, {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores}, {})
    assert GgufCheckpoint(path).metadata["tokenizer.ggml.tokens"] == tokens
    assert least_time_s(lambda: GgufCheckpoint(path), repeats=3) < 0.300


def test_the_default_model_is_what_it_says(smollm2_path: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_path)
    assert checkpoint.kind == "gguf"
    assert checkpoint.files == {}
    assert checkpoint.metadata["general.architecture"] == "llama"
    assert checkpoint.metadata["llama.block_count"] == 30
    tokens = checkpoint.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == 49_152
    assert len(checkpoint.tensor_names) == 272
    embedding = checkpoint.tensor("token_embd.weight")
    assert (embedding.type, embedding.shape) == (TensorType.Q8_0, (49_152, 576))
