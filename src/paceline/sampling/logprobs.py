"""Log-probabilities of a row: log-softmax of the raw logits, whatever penalties and filters the pick went through."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from paceline.backends.base import F32


class RowLogprobs(NamedTuple):
    """The chosen token's log-probability and rank (1 is the likeliest), then the `num_top` likeliest tokens with theirs."""

    logprob: float
    rank: int
    top_ids: list[int]
    top_logprobs: list[float]


def row_logprobs(row: F32, chosen: int, num_top: int) -> RowLogprobs:
    """Report one raw logits row [V]; equal logits rank by the lower id."""
    values = row.astype(np.float64)
    peak = values.max()
    log_total = peak + np.log(np.exp(values - peak).sum())
    above = int((row > row[chosen]).sum()) + int((row[:chosen] == row[chosen]).sum())
    top_ids = _likeliest(row, min(num_top, len(row)))
    return RowLogprobs(float(values[chosen] - log_total), above + 1, top_ids, [float(values[token_id] - log_total) for token_id in top_ids])


def _likeliest(row: F32, num_top: int) -> list[int]:
    if not num_top:
        return []
    threshold = np.partition(row, len(row) - num_top)[len(row) - num_top]
    candidates = np.flatnonzero(row >= threshold)
    order = np.lexsort((candidates, -row[candidates]))
    return [int(token_id) for token_id in candidates[order[:num_top]]]
