"""A plan as the flat arrays that a backend reads: `StepPlan` → `StepInput`.

The one idea: lists first, one array per field at the end; a step of 32 decodes costs tens of microseconds.
"""

from __future__ import annotations

import numpy as np

from paceline.backends.base import I32, Draws, StepInput
from paceline.engine.plan import Slice, StepPlan
from paceline.engine.sequence import DrawSettings

_NO_COPIES = np.zeros((0, 2), np.int32)


def assemble(plan: StepPlan) -> StepInput:
    """The step's input; rebuilt every step, never kept."""
    token_ids: list[int] = []
    positions: list[int] = []
    starts = [0]
    row_indices: list[int] = []
    row_positions: list[int] = []
    settings: list[DrawSettings] = []
    needs_logits = False
    for piece in plan.slices:
        seq, start, end = piece.sequence, piece.start, piece.end
        token_ids += slice_tokens(piece)
        positions += range(start, end)
        starts.append(len(token_ids))
        if piece.num_rows:
            row_indices += range(len(token_ids) - piece.num_rows, len(token_ids))
            row_positions += range(end - piece.num_rows + 1, end + 1)
            settings += [seq.draw_settings] * piece.num_rows
            needs_logits = needs_logits or seq.needs_logits
    return StepInput(
        token_ids=np.array(token_ids, np.int32),
        positions=np.array(positions, np.int32),
        slice_starts=np.array(starts, np.int32),
        context_lens=np.array([piece.end for piece in plan.slices], np.int32),
        block_tables=_block_tables(plan),
        row_indices=np.array(row_indices, np.int32),
        draws=_draws(settings, row_positions),
        copies=np.array(plan.copies, np.int32) if plan.copies else _NO_COPIES,
        needs_logits=needs_logits,
    )


def slice_tokens(piece: Slice) -> list[int]:
    """The tokens of a slice: accepted ones, then drafted ones."""
    seq = piece.sequence
    tokens = seq.token_ids[piece.start : piece.end]
    if len(tokens) < piece.num_new:
        tokens += seq.draft[: piece.num_new - len(tokens)]
    return tokens


def _block_tables(plan: StepPlan) -> I32:
    tables = [piece.sequence.blocks.block_ids for piece in plan.slices if piece.sequence.blocks is not None]
    assert len(tables) == len(plan.slices), "a planned sequence owns blocks"
    filled = np.zeros((1, len(tables), max(map(len, tables), default=0)), np.int32)
    for row, table in zip(filled[0], tables, strict=True):
        row[: len(table)] = table
    return filled


def _draws(settings: list[DrawSettings], positions: list[int]) -> Draws:
    temperature, top_k, top_p, min_p, seeds, seq_indices = zip(*settings, strict=True) if settings else ((),) * 6
    return Draws(
        temperature=np.array(temperature, np.float32),
        top_k=np.array(top_k, np.int32),
        top_p=np.array(top_p, np.float32),
        min_p=np.array(min_p, np.float32),
        seeds=np.array(seeds, np.uint64),
        seq_indices=np.array(seq_indices, np.int32),
        positions=np.array(positions, np.int32),
    )
