"""Steps for backend tests: sequences cut into slices over shuffled blocks.

The one idea: `logits_of_sequences` is the one loop that every equality test runs, so that whole or sliced, alone or together,
in order or shuffled are arguments and not different code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.backends.base import BLOCK_SIZE, F32, Backend, Draws, PoolShape, StepInput

TEST_POOL = PoolShape(num_blocks=257, max_blocks_per_seq=64)
"""Enough for eight sequences of 512 tokens."""


@dataclass(frozen=True, slots=True)
class SliceOf:
    """Tokens of one sequence to compute: those from `start` on, kept in `blocks`."""

    token_ids: Sequence[int]
    start: int
    blocks: Sequence[int]


def greedy_draws(num_rows: int) -> Draws:
    """Draws that pick the likeliest token."""
    zeros, integers = np.zeros(num_rows, np.float32), np.zeros(num_rows, np.int32)
    return Draws(zeros, integers, zeros + 1, zeros, np.zeros(num_rows, np.uint64), integers, integers)


def step_of(slices: Sequence[SliceOf], *, copies: Sequence[tuple[int, int]] = (), row_indices: Sequence[int] | None = None) -> StepInput:
    """A step of these slices; every token is a logits row unless `row_indices` says otherwise."""
    lengths = [len(work.token_ids) for work in slices]
    width = max(len(work.blocks) for work in slices)
    rows = range(sum(lengths)) if row_indices is None else row_indices
    return StepInput(
        token_ids=np.concatenate([np.array(work.token_ids, np.int32) for work in slices]),
        positions=np.concatenate([np.arange(work.start, work.start + len(work.token_ids), dtype=np.int32) for work in slices]),
        slice_starts=np.cumsum([0, *lengths], dtype=np.int32),
        context_lens=np.array([work.start + len(work.token_ids) for work in slices], np.int32),
        block_tables=np.array([[[*work.blocks, *[0] * (width - len(work.blocks))] for work in slices]], np.int32),
        row_indices=np.array(rows, np.int32),
        draws=greedy_draws(len(rows)),
        copies=np.array(copies, np.int32).reshape(-1, 2),
        needs_logits=True,
    )


def shuffled_blocks(sequences: Sequence[Sequence[int]], num_blocks: int, seed: int) -> list[list[int]]:
    """Blocks for each sequence, drawn from the pool in random order; block 0 is never given."""
    free = np.random.default_rng(seed).permutation(np.arange(1, num_blocks)).tolist()
    return [[free.pop() for _ in range(-(-len(ids) // BLOCK_SIZE))] for ids in sequences]


def logits_of_sequences(
    backend: Backend,
    sequences: Sequence[Sequence[int]],
    *,
    slice_tokens: int | None = None,
    num_blocks: int = TEST_POOL.num_blocks,
    seed: int = 0,
) -> list[F32]:
    """The logits of every position of each sequence, computed together in slices of `slice_tokens` (None: whole).

    Shapes:  → [n, V] per sequence
    """
    blocks = shuffled_blocks(sequences, num_blocks, seed)
    size = slice_tokens or max(len(ids) for ids in sequences)
    found: list[list[npt.NDArray[np.float32]]] = [[] for _ in sequences]
    for start in range(0, max(len(ids) for ids in sequences), size):
        running = [index for index, ids in enumerate(sequences) if start < len(ids)]
        step = step_of([SliceOf(sequences[i][start : start + size], start, blocks[i]) for i in running])
        output = backend.forward(step)
        assert output.logits is not None
        for place, index in enumerate(running):
            found[index].append(output.logits[step.slice_starts[place] : step.slice_starts[place + 1]].copy())
    return [np.concatenate(parts) for parts in found]


def random_ids(vocab_size: int, length: int, seed: int) -> list[int]:
    """Token ids from a seed."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab_size, length)]
