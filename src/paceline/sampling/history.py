"""Which tokens a sequence has had, as sparse arrays that penalties read.

The one idea: a history catches up with its sequence's append-only tokens, so a step costs what it added, not what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.backends.base import F32, I64


class TokenHistory:
    """The distinct tokens of prompt and output, each with how often it was generated."""

    __slots__ = ("_counts", "_ids", "_num_prompt", "_num_seen", "_slots")

    def __init__(self, num_prompt: int) -> None:
        self._num_prompt = num_prompt
        self._num_seen = 0
        self._slots: dict[int, int] = {}
        self._ids = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.float32)

    def catch_up(self, token_ids: Sequence[int]) -> None:
        """Take in the tokens that were appended since the last call."""
        self._add(token_ids[self._num_seen : self._num_prompt], 0.0)
        self._add(token_ids[max(self._num_seen, self._num_prompt) :], 1.0)
        self._num_seen = len(token_ids)

    def with_drafted(self, drafted: Sequence[int]) -> TokenHistory:
        """A copy in which drafted tokens count as generated."""
        other = TokenHistory(self._num_prompt)
        other._num_seen, other._slots = self._num_seen, dict(self._slots)
        other._ids, other._counts = self._ids.copy(), self._counts.copy()
        other._add(drafted, 1.0)
        return other

    @property
    def token_ids(self) -> I64:
        """Distinct tokens of prompt and output [D]."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> F32:
        """How often each of `token_ids` was generated [D]; 0 for those of the prompt alone."""
        return self._counts[: len(self._slots)]

    def _add(self, token_ids: Iterable[int], weight: float) -> None:
        for token_id in token_ids:
            slot = self._slots.setdefault(token_id, len(self._slots))
            if slot == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[slot] = token_id
            self._counts[slot] += weight
