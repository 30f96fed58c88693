"""Fusion: what consumes a matrix's output tiles is done by the thread that computed them, while they are in its cache.

The one idea: a value that all threads write, meet for, and read once costs a barrier and two passes over memory. Each pass
below finds one such pattern among the recorded instructions and replaces it by one instruction:

    linear → (head norms) → rope → kv_write     qkv_linear: a thread's tiles are whole heads
    linear → gated                              gated_linear: gate and up tiles in pairs, quantised at once
    linear, add                                 linear with a second input

A pattern that does not fit (a border inside a tile, a value with another reader) stays as it was recorded: slower, never wrong.
No number changes: each is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.backends.native import _core
from paceline.backends.native.program import Attribute, HeadNorms, Instruction, Program, Uses, View
from paceline.models.ops import Matrix, Vector

DROPS_RESULT = frozenset({"rms_norm", "gated", "gated_linear"})
"""Opcodes that can leave their result in a thread's scratch when only its int8 form is read."""


def fuse(program: Program) -> Program:
    """The program with every pattern replaced."""
    passes: tuple[Callable[[Program], Program], ...] = (angles_first, fuse_heads, fuse_gates, fuse_sums, drop_unread)
    for improve in passes:
        program = improve(program)
    return program


def angles_first(program: Program) -> Program:
    """Move what depends on the step's inputs alone to the front, before every layer that needs it."""
    ordered = sorted(program.instructions, key=lambda instruction: instruction.opcode != "angles")
    return replace(program, instructions=tuple(ordered))


def fuse_sums(program: Program) -> Program:
    """Let a linear layer add the value that its result is added to."""
    draft = Draft(program)
    for index, linear in enumerate(program.instructions):
        add_index = draft.sole_reader(linear.out, "add") if linear.opcode == "linear" else None
        if add_index is None or program.instructions[add_index].activations is not None:
            continue
        add = program.instructions[add_index]
        others = [view for view in add.inputs if view != linear.out]
        if len(others) == 1 and draft.uses.maker(others[0].buffer) < index:
            draft.put(index, replace(linear, inputs=(linear.inputs[0], others[0]), out=add.out), replaces=(add_index,))
    return draft.finish()


def fuse_gates(program: Program) -> Program:
    """Let the linear layer of gate and up apply the gate, when both are whole tiles."""
    draft = Draft(program)
    for index, linear in enumerate(program.instructions):
        gate_index = draft.sole_reader(linear.out, "gated") if linear.opcode == "linear" else None
        if gate_index is None or linear.matrix is None:
            continue
        gate = program.instructions[gate_index]
        half = linear.matrix.num_rows // 2
        if are_tiles(linear.matrix, (half, half)):
            fused = replace(linear, opcode="gated_linear", out=gate.out, activations=gate.activations, attributes=gate.attributes)
            draft.put(index, fused, replaces=(gate_index,))
    return draft.finish()


def fuse_heads(program: Program) -> Program:
    """Let the linear layer of q, k and v norm, rotate and cache what it computed, head by head."""
    draft = Draft(program)
    for write_index, write in enumerate(program.instructions):
        if write.opcode != "kv_write":
            continue
        q, k = draft.trace(program.instructions[write_index + 1].inputs[0]), draft.trace(write.inputs[0])
        v, linear_index = write.inputs[1], draft.uses.maker(write.inputs[1].buffer)
        fused = None if linear_index < 0 else draft.fused_heads(program.instructions[linear_index], q, k, v)
        if fused is not None:
            fused = replace(fused, attributes={**fused.attributes, **write.attributes})
            draft.put(linear_index, fused, replaces=(write_index, *q.steps, *k.steps))
    return draft.finish()


def drop_unread(program: Program) -> Program:
    """Keep no float32 form of a value of which only the int8 form is read."""
    draft = Draft(program)
    for index, instruction in enumerate(program.instructions):
        is_dead = instruction.out is not None and not draft.uses.readers(instruction.out)
        if instruction.opcode in DROPS_RESULT and instruction.activations is not None and is_dead:
            draft.put(index, replace(instruction, out=None), replaces=())
    return draft.finish()


def are_tiles(matrix: Matrix, sizes: Sequence[int]) -> bool:
    """Whether each of the adjacent row ranges lies in one part of a matrix and begins where a tile does."""
    starts = [sum(part.shape[0] for part in matrix.parts[:index]) for index in range(len(matrix.parts))]
    row = 0
    for size in sizes:
        part = max(index for index, start in enumerate(starts) if start <= row)
        is_inside = row + size <= starts[part] + matrix.parts[part].shape[0]
        if not is_inside or (row - starts[part]) % _core.ROW_TILE != 0:
            return False
        row += size
    return row == matrix.num_rows


@dataclass(frozen=True, slots=True)
class Path:
    """How a value came out of a linear layer: its columns there, then the instructions that changed it, in order."""

    source: View
    steps: tuple[int, ...]


class Draft:
    """One pass's changes to a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = Uses(program.instructions, program.logits)
        self._changed: dict[int, Instruction] = {}
        self._dropped: set[int] = set()

    def put(self, index: int, instruction: Instruction, *, replaces: Sequence[int]) -> None:
        """Put an instruction in the place of another; those that it `replaces` go."""
        self._changed[index] = instruction
        self._dropped |= set(replaces)

    def finish(self) -> Program:
        """The changed program."""
        kept = (self._changed.get(i, old) for i, old in enumerate(self.program.instructions) if i not in self._dropped)
        return replace(self.program, instructions=tuple(kept))

    def sole_reader(self, view: View | None, opcode: str) -> int | None:
        """The one instruction that reads any number of `view`, when it is an `opcode` and reads all of it."""
        readers = [] if view is None else self.uses.readers(view)
        if len(readers) != 1 or readers[0] == len(self.program.instructions):
            return None
        reader = self.program.instructions[readers[0]]
        return readers[0] if reader.opcode == opcode and view in reader.inputs else None

    def trace(self, view: View) -> Path:
        """Back through norms and rotations of heads that have no other reader."""
        steps: list[int] = []
        while len(self.uses.readers(view)) == 1:
            index = self.uses.maker(view.buffer)
            if index < 0 or self.program.instructions[index].opcode not in ("head_norm", "rope"):
                break
            steps.insert(0, index)
            view = self.program.instructions[index].inputs[0]
        return Path(view, tuple(steps))

    def fused_heads(self, linear: Instruction, q: Path, k: Path, v: View) -> Instruction | None:
        """`linear` with the steps of q and k, or None when they are not what qkv_linear does."""
        if linear.opcode != "linear" or linear.out is None or linear.matrix is None:
            return None
        sources = (q.source, k.source, v)
        borders = [(view.buffer, view.column) for view in sources]
        expected = [(linear.out.buffer, 0), (linear.out.buffer, q.source.cols), (linear.out.buffer, q.source.cols + k.source.cols)]
        is_cut_in_three = borders == expected and len(self.uses.readers(linear.out)) == 3
        turn = self._shared_turn(q, k)
        if not is_cut_in_three or turn is None or not are_tiles(linear.matrix, [view.cols for view in sources]):
            return None
        rope = self.program.instructions[q.steps[-1]]
        return replace(
            turn, opcode="qkv_linear", inputs=(linear.inputs[0], rope.inputs[1]), out=rope.out, matrix=linear.matrix, vector=linear.vector
        )

    def _shared_turn(self, q: Path, k: Path) -> Instruction | None:
        """An instruction with the norms and attributes of both paths, or None when they differ."""
        pairs = [(self.program.instructions[a], self.program.instructions[b]) for a, b in zip(q.steps, k.steps, strict=False)]
        opcodes = tuple(first.opcode for first, _ in pairs)
        if len(q.steps) != len(k.steps) or opcodes not in (("rope",), ("head_norm", "rope")):
            return None
        attributes: dict[str, Attribute] = {}
        for first, second in pairs:
            is_alike = first.opcode == second.opcode and first.inputs[1:] == second.inputs[1:] and first.attributes == second.attributes
            if not is_alike or first.activations is not None or second.activations is not None:
                return None
            attributes |= first.attributes
        gains = [step.vector for step in pairs[0] if isinstance(step.vector, Vector)]
        norms = HeadNorms(gains[0], gains[1]) if len(gains) == 2 else None
        return replace(pairs[-1][0], norms=norms, attributes={**attributes, "num_heads": q.source.cols // int(attributes["head_dim"])})
