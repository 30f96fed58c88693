"""From a program and its arena to what the C++ core runs: names become ids, views become byte offsets.

The one idea: this is the only place that knows both sides' field names. Weights are repacked here, once each, however many
instructions name them (a tied head is one matrix).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.backends.native import _core
from paceline.backends.native.arena import Arena
from paceline.backends.native.program import Frequencies, Instruction, Program, Rows, View
from paceline.formats.checkpoint import RawTensor
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType
from paceline.log import log
from paceline.models.ops import Matrix, Vector

ROW_KINDS = {Rows.TOKENS: _core.RowKind.tokens, Rows.LOGITS: _core.RowKind.logits}


@dataclass(slots=True)
class WeightTable:
    """The packed weights and the id of each, by the weight's identity."""

    weights: _core.Weights
    ids: dict[Matrix | Vector | Frequencies, int] = field(default_factory=dict)


def pack_weights(program: Program, pool: _core.ThreadPool, progress: Callable[[float], None] | None) -> WeightTable:
    """Every weight that a program names, packed with all threads; `progress` hears the share done. Errors: MemoryError"""
    matrices = [i.matrix for i in program.instructions if i.matrix is not None]
    sizes = {matrix: sum(packed_bytes(part) for part in matrix.parts) for matrix in matrices}
    total = sum(sizes.values())
    table = WeightTable(_core.Weights(total))
    done = 0
    for instruction in program.instructions:
        matrix, vector = instruction.matrix, instruction.vector
        if matrix is not None and matrix not in table.ids:
            table.ids[matrix] = table.weights.add_matrix(pool, [source_part(part) for part in matrix.parts])
            done += sizes[matrix]
            if progress is not None:
                progress(done / total)
        norms = () if instruction.norms is None else (instruction.norms.q, instruction.norms.k)
        for gain in (vector, *norms):
            if isinstance(gain, Vector) and gain not in table.ids:
                table.ids[gain] = table.weights.add_vector(np.ascontiguousarray(gain.data, np.float32))
        if isinstance(vector, Frequencies) and vector not in table.ids:
            table.ids[vector] = table.weights.add_frequencies(vector.data)
    return table


def packed_bytes(part: RawTensor) -> int:
    """Bytes of a part once packed."""
    return _core.packed_bytes(packable_type(part.type).value, *part.shape)


def packable_type(kind: TensorType) -> TensorType:
    """The type itself when the core can pack it, else F32."""
    return kind if _core.packed_type_for(kind.value) >= 0 else TensorType.F32


def source_part(part: RawTensor) -> tuple[int, int, int, npt.NDArray[np.uint8]]:
    """A part as the core takes it; a type that has no packed form is dequantised, and that is said."""
    rows, cols = part.shape
    if packable_type(part.type) is part.type:
        return part.type.value, rows, cols, np.ascontiguousarray(part.data)
    log("info", "weights.dequantised", tensor=part.name, type=part.type.name)
    values = np.ascontiguousarray(dequantize(part), np.float32)
    return TensorType.F32.value, rows, cols, values.reshape(-1).view(np.uint8)


def lower(program: Program, arena: Arena, table: WeightTable, *, vocab_size: int, max_tokens: int, max_rows: int) -> _core.Program:
    """The C++ program."""
    lowered = _core.Program()
    lowered.instructions = [
        lower_instruction(instruction, arena, table, has_barrier=index in arena.barriers)
        for index, instruction in enumerate(program.instructions)
    ]
    lowered.logits = operand(program.logits, arena)
    lowered.arena_bytes = arena.arena_bytes
    lowered.kv_type = _core.KvType[program.kv_dtype]
    lowered.kv_block_bytes = program.kv_block_bytes
    lowered.vocab_size = vocab_size
    lowered.max_tokens = max_tokens
    lowered.max_rows = max_rows
    lowered.max_head_dim = max((instruction.head_dim for instruction in lowered.instructions), default=0)
    return lowered


def lower_instruction(instruction: Instruction, arena: Arena, table: WeightTable, *, has_barrier: bool) -> _core.Instruction:
    """One C++ instruction."""
    lowered = _core.Instruction()
    lowered.opcode = _core.Opcode[instruction.opcode]
    lowered.rows = ROW_KINDS[instruction.rows]
    lowered.barrier = has_barrier
    operands = [operand(view, arena) for view in instruction.inputs if view.buffer in arena.offsets]
    if operands:
        lowered.a = operands[0]
    if len(operands) > 1:
        lowered.b = operands[1]
    if instruction.out is not None:
        lowered.out = operand(instruction.out, arena)
    if instruction.activations is not None:
        lowered.activations = arena.offsets[instruction.activations]
        if instruction.out is None:
            lowered.out = _core.Operand(-1, 0, instruction.activations.cols)
    if instruction.matrix is not None:
        lowered.matrix = table.ids[instruction.matrix]
    if instruction.vector is not None:
        lowered.vector = table.ids[instruction.vector]
    if instruction.norms is not None:
        lowered.q_norm, lowered.k_norm = table.ids[instruction.norms.q], table.ids[instruction.norms.k]
    for name, value in instruction.attributes.items():
        setattr(lowered, name, _core.Activation[str(value)] if name == "activation" else value)
    return lowered


def operand(view: View, arena: Arena) -> _core.Operand:
    """Where a view's first number lies, and how far its rows are apart."""
    return _core.Operand(arena.offsets[view.buffer] + 4 * view.column, view.buffer.cols, view.cols)
