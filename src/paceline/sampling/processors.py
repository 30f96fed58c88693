"""Logits processors: each changes one row before the pick, in the order of `PROCESSORS`.

The one idea: a processor is a function of one row and what its sequence has had; a new one is one function and one line in
the table. Temperature and the filters after it belong to the pick (`backends.base.Draws`), not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.backends.base import F32
from paceline.sampling.history import TokenHistory
from paceline.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class RowContext:
    """What a processor may know of its row."""

    params: SamplingParams
    end_ids: Sequence[int]
    """Tokens that would end the sequence."""
    num_generated: int
    """Tokens generated before this row's pick."""
    history: TokenHistory


Processor = Callable[[F32, RowContext], None]
"""Changes a row [V] in place."""


def mask_early_ends(row: F32, context: RowContext) -> None:
    """No end token before `min_tokens` were generated."""
    if context.num_generated < context.params.min_tokens:
        row[list(context.end_ids)] = -np.inf


def add_bias(row: F32, context: RowContext) -> None:
    """Add `logit_bias`."""
    if bias := context.params.logit_bias:
        row[list(bias)] += np.fromiter(bias.values(), np.float32, len(bias))


def penalize_repetition(row: F32, context: RowContext) -> None:
    """Divide positive and multiply negative logits of every token of prompt and output. Source: Keskar et al. 2019 (arXiv:1909.05858)"""
    penalty = np.float32(context.params.repetition_penalty)
    if penalty != 1.0:
        ids = context.history.token_ids
        values = row[ids]
        row[ids] = np.where(values > 0, values / penalty, values * penalty)


def penalize_frequency(row: F32, context: RowContext) -> None:
    """Subtract `frequency_penalty` for each time a token was generated."""
    if context.params.frequency_penalty:
        row[context.history.token_ids] -= np.float32(context.params.frequency_penalty) * context.history.counts


def penalize_presence(row: F32, context: RowContext) -> None:
    """Subtract `presence_penalty` once from every token that was generated."""
    if context.params.presence_penalty:
        row[context.history.token_ids] -= np.float32(context.params.presence_penalty) * (context.history.counts > 0)


PROCESSORS: tuple[Processor, ...] = (mask_early_ends, add_bias, penalize_repetition, penalize_frequency, penalize_presence)


def has_processors(params: SamplingParams) -> bool:
    """Whether any processor would change a row of such a request."""
    return bool(
        params.min_tokens or params.logit_bias or params.repetition_penalty != 1.0 or params.frequency_penalty or params.presence_penalty
    )
