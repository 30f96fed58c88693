"""The arena: no two living values share bytes, and barriers stand exactly where threads could meet."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from paceline.backends.native.arena import Access, accesses_of, buffer_bytes, find_barriers, first_gap, is_hazard, place
from paceline.backends.native.program import Buffer, Instruction, Program, Rows, View, buffers_of
from paceline.backends.native.recorder import record
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import load_model
from tests.generators.tiny_models import tiny_gguf


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program of a tiny model."""
    path = tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", request.param, tensor_type=TensorType.Q4_0)
    model = load_model(open_checkpoint(path))
    return record(model.spec, model.weights)


def test_values_that_share_bytes_are_a_barrier_apart(program: Program) -> None:
    arena = place(program, 100, 7)
    meetings = sorted(arena.barriers)
    phases: dict[Buffer, list[int]] = {}
    for index, instruction in enumerate(program.instructions):
        for buffer in buffers_of(instruction):
            phases.setdefault(buffer, []).append(bisect_left(meetings, index))
    for buffer, start in arena.offsets.items():
        end = start + buffer_bytes(buffer, 100, 7)
        assert end <= arena.arena_bytes
        for other, other_start in arena.offsets.items():
            is_apart = other_start + buffer_bytes(other, 100, 7) <= start or end <= other_start
            is_before = max(phases[buffer]) < min(phases[other]) or max(phases[other]) < min(phases[buffer])
            assert other is buffer or is_apart or is_before


def test_sharing_saves_most_of_the_memory(program: Program) -> None:
    total = sum(buffer_bytes(buffer, 100, 7) for buffer in program.buffers())
    assert place(program, 100, 7).arena_bytes < total / 2


def test_nothing_shares_bytes_with_the_logits_after_they_are_made(program: Program) -> None:
    arena = place(program, 100, 7)
    logits = program.logits.buffer
    made = next(i for i, instruction in enumerate(program.instructions) if logits in buffers_of(instruction))
    for instruction in program.instructions[made:]:
        for buffer in buffers_of(instruction):
            if buffer is not logits and buffer in arena.offsets:
                start, logits_start = arena.offsets[buffer], arena.offsets[logits]
                assert start + buffer_bytes(buffer, 100, 7) <= logits_start or logits_start + buffer_bytes(logits, 100, 7) <= start


def test_every_hazard_has_a_barrier_between(program: Program) -> None:
    barriers = find_barriers(program)
    accesses = [list(accesses_of(instruction)) for instruction in program.instructions]
    for later in range(len(accesses)):
        for earlier in range(later):
            if any(is_hazard(a, b) for a in accesses[earlier] for b in accesses[later]):
                assert any(earlier <= barrier < later for barrier in barriers)


def test_a_layer_needs_at_most_eight_barriers(program: Program) -> None:
    num_layers = sum(instruction.opcode == "attention" for instruction in program.instructions)
    assert len(find_barriers(program)) <= 8 * num_layers + 3


BUFFER = Buffer("%0", Rows.TOKENS, 64)
OTHER = Buffer("%1", Rows.TOKENS, 64)


def test_threads_meet_only_their_own_rows_when_both_split_them() -> None:
    program = Program(
        (
            Instruction("rms_norm", Rows.TOKENS, (OTHER.whole,), BUFFER.whole),
            Instruction("add", Rows.TOKENS, (BUFFER.whole, OTHER.whole), OTHER.whole),
            Instruction("gather_rows", Rows.LOGITS, (OTHER.whole,), Buffer("%2", Rows.LOGITS, 64).whole),
        ),
        Buffer("%2", Rows.LOGITS, 64).whole,
        "int16",
        0,
    )
    assert find_barriers(program) == {1, 2}


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        (Access(BUFFER.whole, True, None), Access(BUFFER.whole, False, Rows.TOKENS), True),
        (Access(BUFFER.whole, True, Rows.TOKENS), Access(BUFFER.whole, False, Rows.TOKENS), False),
        (Access(BUFFER.whole, True, Rows.TOKENS), Access(BUFFER.whole, False, None), True),
        (Access(BUFFER.whole, False, None), Access(BUFFER.whole, True, Rows.TOKENS), True),
        (Access(BUFFER.whole, False, None), Access(BUFFER.whole, False, None), False),
        (Access(View(BUFFER, 0, 32), True, None), Access(View(BUFFER, 32, 32), False, None), False),
        (Access(BUFFER.whole, True, None), Access(OTHER.whole, True, None), False),
        (Access(None, True, Rows.TOKENS), Access(None, False, None), True),
        (Access(None, False, None), Access(BUFFER.whole, True, None), False),
    ],
)
def test_hazard_is_another_thread_s_number_that_is_written(earlier: Access, later: Access, expected: bool) -> None:
    assert is_hazard(earlier, later) is expected


def test_first_gap_is_the_lowest_that_fits() -> None:
    assert first_gap([], 64) == 0
    assert first_gap([(0, 64), (128, 192)], 64) == 64
    assert first_gap([(0, 64), (128, 192)], 128) == 192
    assert first_gap([(64, 128), (0, 96)], 64) == 128
