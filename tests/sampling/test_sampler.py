"""Which rows are picked by whom."""

from __future__ import annotations

import numpy as np

from paceline.backends.base import F32, I32, Draws, StepOutput
from paceline.sampling import draw
from paceline.sampling.params import SamplingParams
from paceline.sampling.sampler import RowRequest, SampledRow, Sampler, needs_logits, select

LOGITS = np.array([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0], [2.0, 0.0, 1.0]], np.float32)


def greedy_draws(num_rows: int) -> Draws:
    """Draws of temperature 0."""
    zeros, ones = np.zeros(num_rows, np.float32), np.ones(num_rows, np.float32)
    whole = np.zeros(num_rows, np.int32)
    return Draws(zeros, whole, ones, zeros, np.zeros(num_rows, np.uint64), whole, np.arange(num_rows, dtype=np.int32))


class CountingPick:
    """The reference's pick, keeping what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[F32, Draws]] = []

    def __call__(self, logits: F32, draws: Draws) -> I32:
        self.asked.append((logits, draws))
        return draw.pick(logits, draws)


def row_of(**params: object) -> SampledRow:
    """What the sampler keeps of a sequence with a prompt of one token."""
    return SampledRow(SamplingParams(**params), eos_ids=(1,), num_prompt=1)  # type: ignore[arg-type]


def test_plain_rows_take_the_backends_picks() -> None:
    pick = CountingPick()
    picks, logprobs = Sampler(pick).sample(StepOutput(np.array([1, 1, 0], np.int32), None), greedy_draws(3), ())
    assert (picks, logprobs, pick.asked) == ([1, 1, 0], {}, [])


def test_only_processed_rows_are_picked_again_with_their_own_draws() -> None:
    pick = CountingPick()
    request = RowRequest(1, row_of(logit_bias={1: -100.0}), [7])
    picks, _ = Sampler(pick).sample(StepOutput(np.array([1, 1, 0], np.int32), LOGITS), greedy_draws(3), [request])
    assert picks == [1, 2, 0]
    ((rows, draws),) = pick.asked
    assert rows.tolist() == [[0.0, -97.0, 1.0]]
    assert draws.positions.tolist() == [1]


def test_logprobs_are_of_the_raw_logits_and_the_final_pick() -> None:
    request = RowRequest(0, row_of(logit_bias={1: -100.0}, logprobs=1), [7])
    picks, logprobs = Sampler(CountingPick()).sample(StepOutput(np.array([1, 1, 0], np.int32), LOGITS), greedy_draws(3), [request])
    assert picks[0] == 2
    assert (logprobs[0].rank, logprobs[0].top_ids) == (2, [1])


def test_logprobs_alone_ask_for_no_second_pick() -> None:
    pick = CountingPick()
    request = RowRequest(2, row_of(logprobs=0), [7])
    _, logprobs = Sampler(pick).sample(StepOutput(np.array([1, 1, 0], np.int32), LOGITS), greedy_draws(3), [request])
    assert pick.asked == []
    assert (logprobs[2].rank, logprobs[2].top_ids) == (1, [])


def test_the_backends_logits_are_left_as_they_are() -> None:
    logits = LOGITS.copy()
    request = RowRequest(0, row_of(min_tokens=5, logit_bias={0: 1.0}), [7])
    picks, _ = Sampler(CountingPick()).sample(StepOutput(np.array([1, 1, 0], np.int32), logits), greedy_draws(3), [request])
    assert picks[0] == 0 or picks[0] == 2, "the end token 1 is masked"
    np.testing.assert_array_equal(logits, LOGITS)


def test_which_params_need_logits() -> None:
    assert not needs_logits(SamplingParams(temperature=0.5, top_p=0.5))
    assert needs_logits(SamplingParams(logprobs=0))
    assert needs_logits(SamplingParams(min_tokens=1))


def test_selecting_draws_takes_whole_rows() -> None:
    assert select(greedy_draws(4), [2, 0]).positions.tolist() == [2, 0]
