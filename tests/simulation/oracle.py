"""What a sequence must say, from its request alone: no scheduler, no cache, no batch.

The one idea: the hash backend's next token is a pure function of the tokens before it, so the oracle needs no engine. Endings
and penalties are written out here a second time, plainly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.backends.base import F32, Draws, PoolShape
from paceline.backends.simulated import HashBackend
from paceline.engine.request import FinishReason, Request
from tests.simulation.scenario import MAX_BLOCKS_PER_SEQ, VOCAB_SIZE, token_text

BACKEND = HashBackend(VOCAB_SIZE, PoolShape(2, MAX_BLOCKS_PER_SEQ))
"""Only asked for its arithmetic; its memory stays empty."""


@dataclass(frozen=True)
class Answer:
    """The tokens of an undisturbed sequence, and why it ends."""

    token_ids: tuple[int, ...]
    reason: FinishReason
    stop_reason: str | int | None


def answer(request: Request, index: int) -> Answer:
    """Generate alone, token by token."""
    generated: list[int] = []
    draws = _draws(request, index)
    terms = sum(BACKEND.term(token_id, position) for position, token_id in enumerate(request.prompt_ids))
    while True:
        position = len(request.prompt_ids) + len(generated)
        row = BACKEND.context_logits(terms)
        _process(row, request, generated)
        draws.positions[0] = position
        generated.append(int(BACKEND.pick(row[None], draws)[0]))
        terms += BACKEND.term(generated[-1], position)
        reason, stop_reason = _ending(request, generated)
        if reason is not None:
            return Answer(tuple(generated), reason, stop_reason)


def _draws(request: Request, index: int) -> Draws:
    """The draws of one row; its position is set token by token."""
    params = request.params
    assert params.seed is not None
    return Draws(
        temperature=np.array([params.temperature], np.float32),
        top_k=np.zeros(1, np.int32),
        top_p=np.ones(1, np.float32),
        min_p=np.zeros(1, np.float32),
        seeds=np.array([params.seed % 2**64], np.uint64),
        seq_indices=np.array([index], np.int32),
        positions=np.zeros(1, np.int32),
    )


def _process(row: F32, request: Request, generated: list[int]) -> None:
    params = request.params
    if len(generated) < params.min_tokens:
        row[[*(() if params.ignore_eos else request.eos_ids), *params.stop_token_ids]] = -np.inf
    for token_id, bias in params.logit_bias.items():
        row[token_id] += np.float32(bias)
    for token_id in {*request.prompt_ids, *generated} if params.repetition_penalty != 1.0 else ():
        penalty = np.float32(params.repetition_penalty)
        row[token_id] = row[token_id] / penalty if row[token_id] > 0 else row[token_id] * penalty
    for token_id in set(generated) if params.frequency_penalty or params.presence_penalty else ():
        row[token_id] -= np.float32(params.frequency_penalty) * np.float32(generated.count(token_id))
        row[token_id] -= np.float32(params.presence_penalty)


def _ending(request: Request, generated: list[int]) -> tuple[FinishReason | None, str | int | None]:
    params, last = request.params, generated[-1]
    if last in request.eos_ids and not params.ignore_eos:
        return "stop", None
    if last in params.stop_token_ids:
        return "stop", last
    text = b"".join(map(token_text, generated[params.min_tokens :])).decode()
    ends = [stop for stop in params.stop if text.endswith(stop)]
    if token_text(last) and ends:
        return "stop", max(ends, key=len)
    return ("length", None) if len(generated) == params.max_tokens else (None, None)
