"""Fusion: it finds its patterns in every family, keeps off what does not fit, and changes no bit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from paceline.backends.native import recorder
from paceline.backends.native.backend import NativeBackend
from paceline.backends.native.fuse import are_tiles
from paceline.backends.native.program import Program
from paceline.backends.native.recorder import Recorder, record
from paceline.formats.checkpoint import RawTensor
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import Model, load_model
from paceline.models.ops import Matrix, Vector
from paceline.models.spec import Activation, AttentionSpec, RopeSpec
from tests.generators.steps import TEST_POOL, logits_of_sequences, random_ids
from tests.generators.tiny_models import tiny_model, write_gguf_of

FAMILIES = ("llama", "qwen2", "gemma3")
ROPE = RopeSpec(32, 1e4)
F32 = npt.NDArray[np.float32]


def matrix(name: str, cols: int, *rows: int, kind: TensorType = TensorType.Q8_0) -> Matrix:
    """A weight of zeros with parts of so many rows."""
    return Matrix(name, tuple(RawTensor(name, kind, (n, cols), np.zeros(kind.num_bytes((n, cols)), np.uint8)) for n in rows))


def opcodes(program: Program) -> list[str]:
    """The opcodes in order."""
    return [instruction.opcode for instruction in program.instructions]


def model_of(folder: Path, family: str, kind: TensorType, **changes: int) -> Model:
    """A tiny model."""
    tiny = tiny_model(family, block_size=kind.block_size, **changes)
    return load_model(open_checkpoint(write_gguf_of(tiny, folder / "tiny.gguf", tensor_type=kind)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [TensorType.Q4_0, TensorType.BF16])
def test_every_layer_is_fused(tmp_path: Path, family: str, kind: TensorType) -> None:
    model = model_of(tmp_path, family, kind, head_dim=32)
    found = Counter(opcodes(record(model.spec, model.weights)))
    num_layers = len(model.spec.layers)
    assert found["qkv_linear"] == found["gated_linear"] == found["attention"] == num_layers
    assert found["linear"] == 2 * num_layers + 1
    assert not {"rope", "head_norm", "kv_write", "gated", "quantize"} & set(found)
    # A sum after a norm of the whole row cannot be taken tile by tile.
    assert found["add"] == (2 * num_layers if family == "gemma3" else 0)


def all_logits(model: Model, threads: int) -> list[F32]:
    """Logits of steps of 1 token up to several chunks, in slices that end inside token tiles."""
    backend = NativeBackend(model, TEST_POOL, threads=threads, max_tokens=300, max_rows=300)
    prompts = [random_ids(model.spec.vocab_size, length, seed=length) for length in (1, 6, 64, 67, 130)]
    whole = [logits_of_sequences(backend, [prompt])[0] for prompt in prompts]
    return whole + logits_of_sequences(backend, prompts, slice_tokens=13)


SHAPES: dict[str, tuple[str, TensorType, dict[str, int]]] = {
    "llama": ("llama", TensorType.Q4_0, {}),
    "biases": ("qwen2", TensorType.Q8_0, {}),
    "head norms": ("gemma3", TensorType.Q4_0, {"num_layers": 2}),
    "superblocks": ("gemma3", TensorType.Q6_K, {"num_layers": 2}),
    "float weights": ("llama", TensorType.BF16, {}),
    "heads of 80, in pairs": ("llama", TensorType.Q4_0, {"head_dim": 80, "num_heads": 6, "num_kv_heads": 3}),
    "heads of 96": ("qwen2", TensorType.Q4_0, {"head_dim": 96}),
    "heads of 40, in fours": ("llama", TensorType.Q4_0, {"head_dim": 40, "num_heads": 12, "num_kv_heads": 6}),
    "heads of 256": ("gemma3", TensorType.Q4_0, {"head_dim": 256, "num_layers": 2}),
    "wide feed-forward": ("llama", TensorType.Q4_0, {"ffn_width": 2080}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_fusion_changes_no_bit(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, kind, changes = SHAPES[shape]
    model = model_of(tmp_path, family, kind, **changes)
    assert "qkv_linear" in opcodes(record(model.spec, model.weights))
    fused = {threads: all_logits(model, threads) for threads in (1, 2, 3)}
    monkeypatch.setattr(recorder, "fuse", lambda program: program)
    assert "qkv_linear" not in opcodes(record(model.spec, model.weights))
    plain = all_logits(model, 2)
    for threads, found in fused.items():
        for ours, theirs in zip(found, plain, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{threads} threads")


def test_layer_of_quantised_and_float_parts_stays_apart_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf_of(tiny_model("qwen2"), tmp_path / "mixed.gguf", tensor_type=TensorType.Q4_0, types={"attn_v": TensorType.F16})
    model = load_model(open_checkpoint(path))
    assert Counter(opcodes(record(model.spec, model.weights)))["kv_write"] == 2
    mixed = all_logits(model, 2)
    monkeypatch.setattr(recorder, "alike", lambda matrix, bias: [(part, own) for part, own in one_by_one(matrix, bias)])
    for ours, theirs in zip(mixed, all_logits(model, 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def one_by_one(whole: Matrix, bias: Vector | None) -> list[tuple[Matrix, Vector | None]]:
    """Every part a matrix of its own."""
    rows, found = 0, []
    for part in whole.parts:
        own = None if bias is None else Vector(part.name, bias.data[rows : rows + part.shape[0]])
        found.append((Matrix(part.name, (part,)), own))
        rows += part.shape[0]
    return found


def recorded_heads(weight: Matrix, *, q_rope: RopeSpec = ROPE, with_norm_of_q: bool = False, reads_k_again: bool = False) -> list[str]:
    """The opcodes of one attention of 2 query heads and a KV head of 32 channels."""
    ops = Recorder()
    q, k, v = ops.split(ops.linear(ops.embed(matrix("table", 64, 9), ops.token_ids, 1.0), weight), (64, 32, 32))
    if with_norm_of_q:
        q = ops.head_norm(q, Vector("gain", np.ones(32, np.float32)), 1e-5)
    q, turned = ops.rope(q, ops.positions, q_rope, 32), ops.rope(k, ops.positions, ROPE, 32)
    mixed = ops.attention(q, turned, v, 0, AttentionSpec(2, 1, 32, ROPE, 0.3))
    result = ops.gated(mixed, Activation.SILU)
    return opcodes(ops.finish(ops.gather_rows(ops.add(result, k) if reads_k_again else result, ops.row_indices)))


def test_heads_are_fused_from_one_part_or_three() -> None:
    for weight in (matrix("qkv", 64, 64, 32, 32), matrix("qkv", 64, 128)):
        assert recorded_heads(weight) == ["angles", "embed", "qkv_linear", "attention", "gated", "gather_rows"]


@pytest.mark.parametrize(
    "found",
    [
        recorded_heads(matrix("qkv", 64, 16, 112)),
        recorded_heads(matrix("qkv", 64, 64, 48, 16)),
        recorded_heads(matrix("qkv", 64, 128), q_rope=RopeSpec(16, 1e4)),
        recorded_heads(matrix("qkv", 64, 128), with_norm_of_q=True),
        recorded_heads(matrix("qkv", 64, 128), reads_k_again=True),
    ],
    ids=["border inside a tile", "section over two parts", "other angles", "norm of q alone", "another reader"],
)
def test_heads_that_do_not_fit_stay_apart(found: list[str]) -> None:
    assert "qkv_linear" not in found
    assert found.count("rope") == 2
    assert "kv_write" in found


def recorded_gate(weight: Matrix, *, reads_again: bool = False) -> list[str]:
    """The opcodes of a gate, and of a linear layer behind it."""
    ops = Recorder()
    both = ops.linear(ops.embed(matrix("table", 64, 9), ops.token_ids, 1.0), weight)
    hidden = ops.gated(both, Activation.SILU)
    if reads_again:
        hidden = ops.add(hidden, ops.split(both, (hidden.cols, hidden.cols))[0])
    return opcodes(ops.finish(ops.gather_rows(hidden, ops.row_indices)))


def test_gates_are_fused_when_both_halves_are_tiles_and_nobody_else_reads_them() -> None:
    assert recorded_gate(matrix("gate_up", 64, 96, 96)) == ["embed", "gated_linear", "gather_rows"]
    assert recorded_gate(matrix("gate_up", 64, 40, 40)) == ["embed", "gated_linear", "gather_rows"]
    assert recorded_gate(matrix("gate_up", 64, 80)) == ["embed", "linear", "gated", "gather_rows"]
    assert recorded_gate(matrix("gate_up", 64, 96, 96), reads_again=True) == ["embed", "linear", "gated", "add", "gather_rows"]


def test_sum_is_fused_into_the_layer_that_comes_last() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 64, 9), ops.token_ids, 1.0)
    a, b = ops.linear(x, matrix("a", 64, 64)), ops.linear(x, matrix("b", 64, 64))
    program = ops.finish(ops.gather_rows(ops.add(b, a), ops.row_indices))
    assert opcodes(program) == ["embed", "linear", "linear", "gather_rows"]
    assert [len(instruction.inputs) for instruction in program.instructions] == [1, 1, 2, 1]


def test_sum_with_itself_and_sum_of_a_result_read_again_stay_apart() -> None:
    for reads_again in (False, True):
        ops = Recorder()
        a = ops.linear(ops.embed(matrix("table", 64, 9), ops.token_ids, 1.0), matrix("a", 64, 64))
        summed = ops.add(ops.softcap(a, 1.0), a) if reads_again else ops.add(a, a)
        assert "add" in opcodes(ops.finish(ops.gather_rows(summed, ops.row_indices)))


@pytest.mark.parametrize(
    ("parts", "sizes", "expected"),
    [
        ((64, 32, 32), (64, 32, 32), True),
        ((128,), (64, 32, 32), True),
        ((40, 40), (40, 40), True),
        ((80,), (40, 40), False),
        ((64, 64), (96, 32), False),
        ((64, 64), (64, 32), False),
        ((32, 96), (32, 32, 64), True),
    ],
)
def test_ranges_are_tiles_when_each_begins_one_and_stays_in_a_part(parts: tuple[int, ...], sizes: tuple[int, ...], expected: bool) -> None:
    assert are_tiles(matrix("m", 32, *parts), sizes) is expected
