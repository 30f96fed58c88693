"""The recorder: golden texts, quantising once, writing in place."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.native.program import Kind, Program, View
from paceline.backends.native.recorder import Recorder
from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType
from paceline.models.ops import Matrix, Vector
from paceline.models.spec import Activation, AttentionSpec, RopeSpec
from tests.golden.programs import FAMILIES, golden_path, program_text

ROPE = RopeSpec(8, 1e4)


def matrix(name: str, rows: int, cols: int, kind: TensorType = TensorType.Q8_0) -> Matrix:
    """A weight of zeros."""
    return Matrix(name, (RawTensor(name, kind, (rows, cols), np.zeros(kind.num_bytes((rows, cols)), np.uint8)),))


def vector(size: int) -> Vector:
    """A weight of ones."""
    return Vector("gain", np.ones(size, np.float32))


def opcodes(program: Program) -> list[str]:
    """The opcodes in order."""
    return [instruction.opcode for instruction in program.instructions]


@pytest.mark.parametrize("family", FAMILIES)
def test_program_text_is_the_golden_one(family: str) -> None:
    assert program_text(family) == golden_path(family).read_text(), "if this is meant: PYTHONPATH=src:. python tests/golden/programs.py"


def test_value_is_quantised_once_for_all_its_readers() -> None:
    ops = Recorder()
    x = ops.rms_norm(ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0), vector(64), 1e-5)
    summed = ops.add(ops.linear(x, matrix("a", 32, 64)), ops.linear(x, matrix("b", 32, 64)))
    program = ops.finish(ops.gather_rows(summed, ops.row_indices))
    first, second = (i for i in program.instructions if i.opcode == "linear")
    assert first.inputs[0] == second.inputs[0]
    assert first.inputs[0].buffer is program.instructions[1].activations
    assert opcodes(program) == ["embed", "rms_norm", "linear", "linear", "gather_rows"]


def test_result_of_tiles_is_quantised_by_an_instruction_of_its_own() -> None:
    ops = Recorder()
    x = ops.linear(ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0), matrix("a", 64, 64))
    program = ops.finish(ops.gather_rows(ops.linear(x, matrix("b", 32, 64)), ops.row_indices))
    assert opcodes(program) == ["embed", "linear", "quantize", "linear", "gather_rows"]


def test_attention_quantises_heads_that_are_whole_blocks() -> None:
    for head_dim, quantize in ((32, []), (8, ["quantize"])):
        ops = Recorder()
        x = ops.embed(matrix("table", 9, 128), ops.token_ids, 1.0)
        q, k, v = ops.split(x, (64, 32, 32))
        heads = AttentionSpec(64 // head_dim, 32 // head_dim, head_dim, ROPE, 0.3)
        mixed = ops.linear(ops.attention(q, k, v, 0, heads), matrix("o", 32, 64))
        program = ops.finish(ops.gather_rows(mixed, ops.row_indices))
        assert opcodes(program) == ["embed", "kv_write", "attention", *quantize, "linear", "gather_rows"]


def test_matrix_of_quantised_and_float_parts_is_two_layers_of_one_result() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    parts = (*matrix("q", 32, 64).parts, *matrix("v", 16, 64, TensorType.F32).parts)
    bias = Vector("bias", np.arange(48, dtype=np.float32))
    program = ops.finish(ops.gather_rows(ops.linear(x, Matrix("qv", parts), bias), ops.row_indices))
    quantised, floats = (i for i in program.instructions if i.opcode == "linear")
    assert [quantised.inputs[0].buffer.kind, floats.inputs[0].buffer.kind] == [Kind.ACTIVATIONS, Kind.F32]
    assert quantised.out is not None
    assert floats.out == View(quantised.out.buffer, 32, 16)
    assert isinstance(floats.vector, Vector)
    np.testing.assert_array_equal(floats.vector.data, np.arange(32, 48))


def test_float_weights_need_no_activations() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    program = ops.finish(ops.gather_rows(ops.linear(x, matrix("a", 32, 64, TensorType.BF16)), ops.row_indices))
    assert all(buffer.kind is Kind.F32 for buffer in program.buffers())


def test_result_overwrites_an_input_that_nobody_reads_again() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    program = ops.finish(ops.gather_rows(ops.add(x, ops.rms_norm(x, vector(64), 1e-5)), ops.row_indices))
    add = program.instructions[2]
    assert add.out == add.inputs[0]


def test_sum_of_a_linear_layer_keeps_off_what_the_layer_reads() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    program = ops.finish(ops.gather_rows(ops.add(x, ops.linear(x, matrix("a", 64, 64, TensorType.F32))), ops.row_indices))
    linear = program.instructions[1]
    assert linear.out is not None
    assert linear.inputs == (x, x)
    assert not linear.out.overlaps(x)


def test_result_keeps_off_an_input_that_is_read_again() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    capped = ops.softcap(x, 2.0)
    program = ops.finish(ops.gather_rows(ops.add(x, capped), ops.row_indices))
    softcap = program.instructions[1]
    assert softcap.out is not None
    assert not softcap.out.overlaps(softcap.inputs[0])


def test_view_is_rotated_where_it_lies() -> None:
    ops = Recorder()
    q, k, v = ops.split(ops.linear(ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0), matrix("qkv", 32, 64)), (16, 8, 8))
    q, k = (ops.rope(x, ops.positions, ROPE, 8) for x in (q, k))
    mixed = ops.attention(q, k, v, 0, AttentionSpec(2, 1, 8, ROPE, 0.3, window=4))
    program = ops.finish(ops.gather_rows(ops.gated(mixed, Activation.SILU), ops.row_indices))
    ropes = [i for i in program.instructions if i.opcode == "rope"]
    assert len(ropes) == 2  # a k that begins inside a tile keeps them apart from the linear layer
    assert all(i.out == i.inputs[0] for i in ropes)
    assert opcodes(program).count("angles") == 1


def test_logits_may_be_written_in_place() -> None:
    ops = Recorder()
    rows = ops.gather_rows(ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0), ops.row_indices)
    program = ops.finish(ops.softcap(ops.linear(rows, matrix("head", 9, 64)), 30.0))
    assert program.instructions[-1].inputs == (program.logits,)


def test_each_layer_has_its_own_part_of_a_block() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 32), ops.token_ids, 1.0)
    for layer in range(2):
        q, k, v = ops.split(x, (16, 8, 8))
        x = ops.attention(q, k, v, layer, AttentionSpec(2, 1, 8, ROPE, 0.3))
        x = ops.linear(x, matrix("o", 32, 16, TensorType.F32))
    program = ops.finish(ops.gather_rows(x, ops.row_indices))
    offsets = [i.attributes["kv_offset"] for i in program.instructions if i.opcode == "attention"]
    # 8 channels take a whole register of 16: K and V of 16 tokens, 2 bytes each, and their scales
    assert offsets == [0, 1152]
    assert program.kv_block_bytes == 2304


def test_shapes_that_do_not_fit_are_our_bug() -> None:
    ops = Recorder()
    x = ops.embed(matrix("table", 9, 64), ops.token_ids, 1.0)
    with pytest.raises(AssertionError):
        ops.linear(x, matrix("a", 32, 96))
    with pytest.raises(AssertionError):
        ops.rms_norm(x, vector(63), 1e-5)
