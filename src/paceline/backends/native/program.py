"""A recorded forward pass: instructions over named, shaped values, with a text form that a person can read and diff.

The one idea: a program is data. The recorder appends instructions; passes improve them; `arena` places their values in memory;
`lowering` hands the result to the C++ core. The text (golden in tests/golden) shows each of these decisions but the placement:

     7  %4[T, 128] = linear(%3) matrix=layers.0.o
    ---- barrier

It holds no weights of its own, only references to them, and it does not know how many tokens a step has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from paceline.backends.base import KvDtype
from paceline.models.ops import Matrix, Vector


class Rows(Enum):
    """Which count of the step is a value's number of rows."""

    TOKENS = "T"
    LOGITS = "R"


class Kind(Enum):
    """How a buffer's numbers are stored."""

    F32 = "f32"
    ACTIVATIONS = "int8 blocks"
    INPUT = "step input"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A value's memory: `cols` columns, as many rows as the step says. Two buffers are never equal, only identical."""

    name: str
    rows: Rows
    cols: int
    kind: Kind = Kind.F32

    @property
    def whole(self) -> View:
        """All columns."""
        return View(self, 0, self.cols)


@dataclass(frozen=True, slots=True)
class View:
    """A range of a buffer's columns: what `Ops` calls an array."""

    buffer: Buffer
    column: int
    cols: int

    @property
    def rows(self) -> Rows:
        """Which count its rows follow."""
        return self.buffer.rows

    def overlaps(self, other: View) -> bool:
        """Whether both name some number in common."""
        is_apart = self.column + self.cols <= other.column or other.column + other.cols <= self.column
        return self.buffer is other.buffer and not is_apart

    def __str__(self) -> str:
        buffer = self.buffer
        if buffer.kind is Kind.INPUT:
            return buffer.name
        return buffer.name if self.cols == buffer.cols else f"{buffer.name}[{self.column}:{self.column + self.cols}]"


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """The inverse frequencies of a rotary embedding [dim / 2], float64."""

    name: str
    data: npt.NDArray[np.float64]


Attribute = int | float | str

LINEAR = frozenset({"linear", "gated_linear", "qkv_linear"})
"""Opcodes that multiply by a matrix."""

TILED = LINEAR | {"attention"}
"""Opcodes that split by output tiles or heads, so that every thread reads and writes rows of all tokens; all others split by rows."""


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The gains of the norms of query and key heads."""

    q: Vector
    k: Vector


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation.

    The first input of a linear opcode is the int8 form of a value where the matrix is quantised. `activations` is the int8
    form of the result, written at once; `out` is None when nobody reads the result itself. `attributes` are the fields of the
    C++ instruction of the same names.
    """

    opcode: str
    rows: Rows
    inputs: tuple[View, ...]
    out: View | None = None
    activations: Buffer | None = None
    matrix: Matrix | None = None
    vector: Vector | Frequencies | None = None
    norms: HeadNorms | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def writes_cache(self) -> bool:
        """Whether it adds keys and values to the cache."""
        return self.opcode in ("kv_write", "qkv_linear")

    def written(self) -> Iterator[View]:
        """What it writes into buffers."""
        if self.out is not None:
            yield self.out
        if self.activations is not None:
            yield self.activations.whole

    def __str__(self) -> str:
        results = [] if self.out is None else [f"{self.out}[{self.rows.value}, {self.out.cols}]"]
        if self.activations is not None:
            results.append(f"{self.activations.name}[{self.rows.value}, {self.activations.cols}] int8")
        if self.writes_cache:
            results.append("cache")
        notes = {
            **({} if self.matrix is None else {"matrix": self.matrix.name}),
            **({} if self.vector is None else {"vector": self.vector.name}),
            **({} if self.norms is None else {"norms": f"{self.norms.q.name},{self.norms.k.name}"}),
            **self.attributes,
        }
        tail = "".join(f" {key}={value:.6g}" if isinstance(value, float) else f" {key}={value}" for key, value in notes.items())
        return f"{', '.join(results)} = {self.opcode}({', '.join(str(view) for view in self.inputs)}){tail}"


@dataclass(frozen=True, slots=True)
class Program:
    """A whole forward pass; `logits` [R, V] is its result."""

    instructions: tuple[Instruction, ...]
    logits: View
    kv_dtype: KvDtype
    kv_block_bytes: int
    """Bytes of one KV block over all layers."""

    def buffers(self) -> Iterator[Buffer]:
        """Every buffer that needs memory, in order of first use."""
        seen: set[int] = set()
        for instruction in self.instructions:
            for buffer in buffers_of(instruction):
                if buffer.kind is not Kind.INPUT and id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield buffer

    def render(self, barriers: frozenset[int] = frozenset()) -> str:
        """The text form, one instruction a line; `barriers` are the indices after which all threads meet."""
        lines = []
        for index, instruction in enumerate(self.instructions):
            lines.append(f"{index:4}  {instruction}")
            if index in barriers:
                lines.append("----  barrier")
        return "\n".join(lines) + "\n"


def buffers_of(instruction: Instruction) -> Iterator[Buffer]:
    """The buffers that an instruction touches, inputs first."""
    for view in (*instruction.inputs, *instruction.written()):
        yield view.buffer


class Uses:
    """Who reads a program's values, and which instruction makes each; for programs in which no value is overwritten yet."""

    def __init__(self, instructions: Sequence[Instruction], result: View) -> None:
        self._reads: dict[Buffer, list[tuple[int, View]]] = {}
        self._makers: dict[Buffer, int] = {}
        for index, instruction in enumerate(instructions):
            for view in instruction.inputs:
                self._reads.setdefault(view.buffer, []).append((index, view))
            for view in instruction.written():
                self._makers[view.buffer] = index
        self._reads.setdefault(result.buffer, []).append((len(instructions), result))

    def readers(self, view: View) -> list[int]:
        """The instructions that read a number of `view`, the end of the program included, in order."""
        return [index for index, read in self._reads.get(view.buffer, []) if read.overlaps(view)]

    def maker(self, buffer: Buffer) -> int:
        """The instruction that writes a buffer; -1 for an input of the step."""
        return self._makers.get(buffer, -1)
