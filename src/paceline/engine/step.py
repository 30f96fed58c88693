"""One forward pass: plan → arrays → backend → verdicts."""

from __future__ import annotations

from paceline.backends.base import Backend
from paceline.engine.assemble import assemble
from paceline.engine.messages import TokenLogprobs
from paceline.engine.plan import StepPlan, Verdict
from paceline.sampling.logprobs import RowLogprobs
from paceline.sampling.sampler import RowRequest, Sampler
from paceline.speculative.verify import num_accepted


def run_step(plan: StepPlan, backend: Backend, sampler: Sampler) -> list[Verdict]:
    """Compute the plan; one verdict per slice with rows, in order. Errors: EngineError when the backend fails."""
    step = assemble(plan)
    output = backend.forward(step)
    picks, logprobs = sampler.sample(output, step.draws, row_requests(plan) if step.needs_logits else ())
    return verify(plan, picks, logprobs)


def row_requests(plan: StepPlan) -> list[RowRequest]:
    """The rows that need more than the backend's own pick."""
    requests: list[RowRequest] = []
    row_index = 0
    for piece in plan.slices:
        seq = piece.sequence
        if seq.sampled_row is not None:
            requests += [
                RowRequest(row_index + count, seq.sampled_row, seq.token_ids, seq.draft[:count]) for count in range(piece.num_rows)
            ]
        row_index += piece.num_rows
    return requests


def verify(plan: StepPlan, picks: list[int], logprobs: dict[int, RowLogprobs]) -> list[Verdict]:
    """Match each slice's drafts against its picks."""
    verdicts: list[Verdict] = []
    row_index = 0
    for piece in plan.slices:
        if not piece.num_rows:
            continue
        seq = piece.sequence
        rows = picks[row_index : row_index + piece.num_rows]
        accepted = num_accepted(seq.draft[: piece.num_rows - 1], rows) if piece.num_rows > 1 else 0
        reported = None
        if seq.request.params.logprobs is not None:
            reported = [TokenLogprobs(*logprobs[row_index + count]) for count in range(accepted + 1)]
        verdicts.append(Verdict(seq, rows[: accepted + 1], accepted, reported))
        row_index += piece.num_rows
    return verdicts
