"""Turns a step's output into picks: the backend's own where a row is plain, its `pick` on processed logits where not.

The one idea: one drawing arithmetic. Processors change logits here in NumPy; the filters and the draw are always the
backend's, with the same `Draws`, so a processor that changes nothing changes no token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.backends.base import F32, I32, Draws, StepOutput
from paceline.sampling.history import TokenHistory
from paceline.sampling.logprobs import RowLogprobs, row_logprobs
from paceline.sampling.params import SamplingParams
from paceline.sampling.processors import PROCESSORS, RowContext, has_processors

Pick = Callable[[F32, Draws], I32]


def needs_logits(params: SamplingParams) -> bool:
    """Whether rows of such a request need their logits on this side."""
    return params.logprobs is not None or has_processors(params)


class SampledRow:
    """What the sampler keeps of one sequence that needs logits."""

    __slots__ = ("end_ids", "has_processors", "history", "num_prompt", "params")

    def __init__(self, params: SamplingParams, eos_ids: Sequence[int], num_prompt: int) -> None:
        self.params = params
        self.end_ids = (*(() if params.ignore_eos else eos_ids), *params.stop_token_ids)
        self.num_prompt = num_prompt
        self.history = TokenHistory(num_prompt)
        self.has_processors = has_processors(params)


@dataclass(frozen=True, slots=True)
class RowRequest:
    """One logits row that needs more than the backend's pick: row `row_index` follows `token_ids` and then `drafted`."""

    row_index: int
    row: SampledRow
    token_ids: Sequence[int]
    drafted: Sequence[int] = ()


class Sampler:
    """Picks of one backend."""

    def __init__(self, pick: Pick) -> None:
        self._pick = pick

    def sample(self, output: StepOutput, draws: Draws, requests: Sequence[RowRequest]) -> tuple[list[int], dict[int, RowLogprobs]]:
        """The token of every row [R], and the log-probabilities of those rows that asked for them."""
        picks: list[int] = output.picks.tolist()
        if not requests:
            return picks, {}
        logits = output.logits
        assert logits is not None, "rows that need logits were planned without"
        processed = [request for request in requests if request.row.has_processors]
        if processed:
            rows = np.stack([self._process(logits[request.row_index], request) for request in processed])
            indices = [request.row_index for request in processed]
            for row_index, token_id in zip(indices, self._pick(rows, select(draws, indices)).tolist(), strict=True):
                picks[row_index] = token_id
        logprobs = {
            request.row_index: row_logprobs(logits[request.row_index], picks[request.row_index], request.row.params.logprobs)
            for request in requests
            if request.row.params.logprobs is not None
        }
        return picks, logprobs

    def _process(self, raw: F32, request: RowRequest) -> F32:
        row = request.row
        row.history.catch_up(request.token_ids)
        history = row.history.with_drafted(request.drafted) if request.drafted else row.history
        num_generated = len(request.token_ids) + len(request.drafted) - row.num_prompt
        context = RowContext(row.params, row.end_ids, num_generated, history)
        processed = raw.copy()
        for processor in PROCESSORS:
            processor(processed, context)
        return processed


def select(draws: Draws, indices: Sequence[int]) -> Draws:
    """The draws of some rows."""
    rows = list(indices)
    return Draws(
        draws.temperature[rows],
        draws.top_k[rows],
        draws.top_p[rows],
        draws.min_p[rows],
        draws.seeds[rows],
        draws.seq_indices[rows],
        draws.positions[rows],
    )
