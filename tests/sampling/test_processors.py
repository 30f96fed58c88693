"""Each processor against its definition, and their order."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.base import F32
from paceline.sampling.history import TokenHistory
from paceline.sampling.params import SamplingParams
from paceline.sampling.processors import PROCESSORS, RowContext, has_processors

PROMPT, GENERATED = [0, 1], [1, 2, 2]


def processed(params: SamplingParams, row: list[float], end_ids: tuple[int, ...] = (3,)) -> list[float]:
    """The row after every processor."""
    history = TokenHistory(len(PROMPT))
    history.catch_up(PROMPT + GENERATED)
    context = RowContext(params, end_ids, len(GENERATED), history)
    array: F32 = np.array(row, np.float32)
    for processor in PROCESSORS:
        processor(array, context)
    result: list[float] = array.tolist()
    return result


def test_plain_params_change_nothing() -> None:
    assert processed(SamplingParams(), [1.0, 2.0, 3.0, 4.0]) == [1.0, 2.0, 3.0, 4.0]
    assert not has_processors(SamplingParams(temperature=0.3, top_k=5, stop=("a",)))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(min_tokens=4), [1.0, -2.0, 3.0, -np.inf]),
        (SamplingParams(min_tokens=3), [1.0, -2.0, 3.0, 4.0]),
        (SamplingParams(logit_bias={0: 2.5, 3: -1.0}), [3.5, -2.0, 3.0, 3.0]),
        (SamplingParams(repetition_penalty=2.0), [0.5, -4.0, 1.5, 4.0]),
        (SamplingParams(frequency_penalty=0.5), [1.0, -2.5, 2.0, 4.0]),
        (SamplingParams(presence_penalty=0.5), [1.0, -2.5, 2.5, 4.0]),
        (SamplingParams(logit_bias={2: 1.0}, repetition_penalty=2.0, frequency_penalty=0.5), [0.5, -4.5, 1.0, 4.0]),
    ],
    ids=["min_tokens", "min_tokens_reached", "bias", "repetition", "frequency", "presence", "bias_then_repetition_then_frequency"],
)
def test_a_processor_does_what_it_says(params: SamplingParams, expected: list[float]) -> None:
    assert has_processors(params)
    assert processed(params, [1.0, -2.0, 3.0, 4.0]) == expected
