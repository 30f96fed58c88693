"""Perplexity scores every token of a window but its first, with the row before it, whatever the slices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.backends.base import BLOCK_SIZE, F32, I32, Draws, PoolShape, StepInput, StepOutput
from paceline.backends.simulated import HashBackend
from paceline.bench.perplexity import cut_windows, nll, score_text, slice_step, window_losses
from paceline.errors import RequestError

VOCAB_SIZE = 11


class NextTokenBackend:
    """Gives the token (last + 1) mod V the probability p, all others the same."""

    name, numerics, vocab_size, kv_bytes_per_block = "next", "next", VOCAB_SIZE, 0

    def __init__(self, p: float) -> None:
        self.hit, self.miss = math.log(p), math.log((1 - p) / (VOCAB_SIZE - 1))

    def forward(self, step: StepInput) -> StepOutput:
        logits = np.full((len(step.row_indices), VOCAB_SIZE), self.miss + 3.0, np.float32)
        logits[np.arange(len(logits)), (step.token_ids[step.row_indices] + 1) % VOCAB_SIZE] = self.hit + 3.0
        return StepOutput(np.zeros(len(logits), np.int32), logits)

    def pick(self, logits: F32, draws: Draws) -> I32:
        raise AssertionError("nothing is picked")

    def close(self) -> None:
        pass


def test_mean_is_the_sum_over_scored_tokens() -> None:
    backend = NextTokenBackend(0.5)
    row = score_text(backend, [0, 1, 2, 9, 10, 0], window=4, slice_rows=3, bos_id=None)
    expected = -(4 * backend.hit + 1 * backend.miss) / 5  # scored: 1, 2, 9 and, after the cut, 0; the cut leaves out 10
    assert row.tokens == 4
    assert row.mean_nll == pytest.approx(-(3 * backend.hit + backend.miss) / 4, rel=1e-6)
    assert row.mean_nll != pytest.approx(expected, rel=1e-3)
    assert row.perplexity == pytest.approx(math.exp(row.mean_nll))
    assert row.windows == 2


def test_bos_begins_every_window_and_is_not_scored() -> None:
    assert list(cut_windows([1, 2, 3, 4, 5], 3, bos_id=0)) == [[0, 1, 2], [0, 3, 4], [0, 5]]


def test_rest_too_short_to_score_is_left_out() -> None:
    assert list(cut_windows([1, 2, 3, 4, 5], 2, bos_id=None)) == [[1, 2], [3, 4]]


def test_windows_do_not_depend_on_the_slices() -> None:
    ids = list(np.random.default_rng(0).integers(0, VOCAB_SIZE, 50))
    whole, sliced = (window_losses(HashBackend(VOCAB_SIZE, PoolShape(8, 4)), ids, rows) for rows in (64, 7))
    assert whole.shape == (49,)
    np.testing.assert_array_equal(whole, sliced)


def test_slice_lies_in_the_blocks_that_its_positions_name() -> None:
    step = slice_step(list(range(100)), 30, 40)
    assert step.context_lens.tolist() == [40]
    assert step.block_tables.tolist() == [[[1, 2, 3]]]
    assert step.positions[-1] // BLOCK_SIZE < step.block_tables.shape[2]
    assert step.row_indices.tolist() == list(range(10))


def test_nll_survives_large_logits() -> None:
    logits = np.array([[1e4, 0.0], [0.0, 1e4]], np.float32)
    np.testing.assert_allclose(nll(logits, np.array([0, 0])), [0.0, 1e4])


def test_text_without_a_scored_token_is_refused() -> None:
    with pytest.raises(RequestError):
        score_text(NextTokenBackend(0.5), [1], window=8, slice_rows=8, bos_id=None)
    with pytest.raises(RequestError):
        score_text(NextTokenBackend(0.5), [1, 2], window=1, slice_rows=8, bos_id=None)
