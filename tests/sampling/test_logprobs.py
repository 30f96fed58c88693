"""Log-probabilities of raw logits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.sampling.logprobs import row_logprobs


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=30), st.data())
def test_it_equals_sorting_the_softmax(values: list[int], data: st.DataObject) -> None:
    row = np.array(values, np.float32)
    chosen = data.draw(st.integers(0, len(values) - 1))
    num_top = data.draw(st.integers(0, 20))
    found = row_logprobs(row, chosen, num_top)
    expected = np.log(np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum())
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    # Both sides compute in float64 with sums of at most 30 terms: a few dozen roundings of 2⁻⁵² each.
    np.testing.assert_allclose(found.logprob, expected[chosen], rtol=0, atol=1e-13)
    assert found.rank == order.index(chosen) + 1
    assert found.top_ids == order[:num_top]
    np.testing.assert_allclose(found.top_logprobs, expected[order[:num_top]], rtol=0, atol=1e-13)


def test_huge_logits_do_not_overflow() -> None:
    found = row_logprobs(np.array([3e38, 0.0], np.float32), 0, 1)
    assert (found.logprob, found.rank) == (0.0, 1)
