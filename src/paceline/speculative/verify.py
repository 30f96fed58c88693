"""The match rule: a drafted token is accepted when it is what the ordinary sampler picks at its position.

The one idea: row j is computed as if drafts 0…j−1 were true, so while they are, its pick is exactly the token that plain
decoding would give. The first pick that differs is itself the next token; after the last draft the pick is a bonus.
Hence k drafts give 1 to k + 1 tokens, and never another token than without speculation.

Source: for one-hot drafts this equals token-wise rejection sampling, Leviathan et al. 2023 (arXiv:2211.17192).
"""

from __future__ import annotations

from collections.abc import Sequence


def num_accepted(draft: Sequence[int], picks: Sequence[int]) -> int:
    """How many leading drafted tokens equal their picks; `picks` has one more, the bonus. Empty drafts accept 0."""
    assert len(picks) == len(draft) + 1, "a draft of k tokens is verified by k + 1 rows"
    for index, token_id in enumerate(draft):
        if token_id != picks[index]:
            return index
    return len(draft)
