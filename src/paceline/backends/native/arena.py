"""Where a program's values live, and where its threads must meet.

The one idea: barriers follow from who touches which numbers, and cut the program into phases; memory follows from phases. A
barrier stands before an instruction that touches numbers which another thread may have written (or still reads) since the last
one. Two values may share bytes when a barrier lies between the last touch of the one and the first of the other, so sharing
never costs a barrier.

No barrier is needed between two instructions that split the same rows the same way: a thread meets only its own rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.backends.native import _core
from paceline.backends.native.program import TILED, Buffer, Instruction, Kind, Program, Rows, View, buffers_of

ALIGNMENT = 64
"""Bytes; a cache line, and what the kernels expect of activations."""


@dataclass(frozen=True, slots=True)
class Arena:
    """The placement of one program for at most `max_tokens` tokens and `max_rows` logits rows.

    Units:   offsets and arena_bytes in bytes; offsets by buffer identity
    """

    offsets: dict[Buffer, int]
    arena_bytes: int
    barriers: frozenset[int]
    """Indices of the instructions after which all threads meet."""


def place(program: Program, max_tokens: int, max_rows: int) -> Arena:
    """Find a program's barriers, and place every buffer: first fit in order of first use."""
    barriers = find_barriers(program)
    lives = lifetimes(program, barriers)
    placed: list[tuple[int, int, Buffer]] = []
    for buffer in program.buffers():
        size = buffer_bytes(buffer, max_tokens, max_rows)
        first, last = lives[buffer]
        neighbours = [(start, end) for start, end, other in placed if lives[other][0] <= last and first <= lives[other][1]]
        offset = first_gap(neighbours, size)
        placed.append((offset, offset + size, buffer))
    return Arena({buffer: start for start, _, buffer in placed}, max((end for _, end, _ in placed), default=0), barriers)


def lifetimes(program: Program, barriers: frozenset[int]) -> dict[Buffer, tuple[int, int]]:
    """First and last phase in which each buffer is touched; the logits live on after the last."""
    meetings = sorted(barriers)
    lives: dict[Buffer, tuple[int, int]] = {}
    for index, instruction in enumerate(program.instructions):
        phase = bisect_left(meetings, index)
        for buffer in buffers_of(instruction):
            lives[buffer] = (lives.get(buffer, (phase, phase))[0], phase)
    logits = program.logits.buffer
    lives[logits] = (lives[logits][0], len(meetings))
    return lives


def buffer_bytes(buffer: Buffer, max_tokens: int, max_rows: int) -> int:
    """The most bytes that a buffer needs, in whole cache lines."""
    count = max_tokens if buffer.rows is Rows.TOKENS else max_rows
    size = _core.activation_bytes(count, buffer.cols) if buffer.kind is Kind.ACTIVATIONS else count * buffer.cols * 4
    return -(-size // ALIGNMENT) * ALIGNMENT


def first_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest offset at which `size` bytes fit beside the taken ranges."""
    offset = 0
    for start, end in sorted(taken):
        if offset + size <= start:
            break
        offset = max(offset, end)
    return offset


@dataclass(frozen=True, slots=True)
class Access:
    """One instruction's touch of numbers: columns of a buffer, or the KV cache (view None)."""

    view: View | None
    is_write: bool
    rows: Rows | None
    """The rows that the threads split, or None when every thread may touch every row."""


def find_barriers(program: Program) -> frozenset[int]:
    """The instructions after which all threads meet; always the last."""
    barriers = {len(program.instructions) - 1}
    since_barrier: list[Access] = []
    for index, instruction in enumerate(program.instructions):
        accesses = list(accesses_of(instruction))
        if any(is_hazard(earlier, access) for earlier in since_barrier for access in accesses):
            barriers.add(index - 1)
            since_barrier = []
        since_barrier += accesses
    return frozenset(barriers)


def accesses_of(instruction: Instruction) -> Iterator[Access]:
    """What an instruction reads and writes."""
    rows = None if instruction.opcode in TILED else instruction.rows
    read_rows = None if instruction.opcode == "gather_rows" else rows
    for view in instruction.inputs:
        if view.buffer.kind is not Kind.INPUT:
            yield Access(view, False, read_rows)
    for view in instruction.written():
        yield Access(view, True, rows)
    if instruction.writes_cache or instruction.opcode == "attention":
        yield Access(None, instruction.writes_cache, rows)


def is_hazard(earlier: Access, later: Access) -> bool:
    """Whether `later` may meet numbers that another thread touches in `earlier`, one of them writing."""
    if not (earlier.is_write or later.is_write):
        return False
    if earlier.rows is not None and earlier.rows is later.rows:
        return False
    if earlier.view is None or later.view is None:
        return earlier.view is later.view
    return earlier.view.overlaps(later.view)
