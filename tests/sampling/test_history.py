"""What penalties count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paceline.sampling.history import TokenHistory

TOKENS = st.lists(st.integers(0, 200), max_size=150)


def as_counts(history: TokenHistory) -> dict[int, float]:
    """Token → times generated."""
    return dict(zip(history.token_ids.tolist(), history.counts.tolist(), strict=True))


@given(TOKENS, TOKENS, st.data())
def test_catching_up_in_pieces_equals_counting_at_once(prompt: list[int], generated: list[int], data: st.DataObject) -> None:
    history = TokenHistory(len(prompt))
    tokens = prompt + generated
    for cut in sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=4))):
        history.catch_up(tokens[:cut])
    history.catch_up(tokens)
    counts = Counter(generated)
    assert as_counts(history) == {token: counts[token] for token in tokens}


def test_drafted_tokens_count_in_the_copy_alone() -> None:
    history = TokenHistory(1)
    history.catch_up([5, 6])
    copy = history.with_drafted([6, 7])
    assert as_counts(copy) == {5: 0, 6: 2, 7: 1}
    assert as_counts(history) == {5: 0, 6: 1}
