"""A scheduler without a model, for tests of plans and commits: who gets what, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.cache.block_pool import BlockPool
from paceline.cache.eviction import LeastRecentlyUsed
from paceline.cache.prefix_cache import PrefixCache
from paceline.engine.endings import end_check
from paceline.engine.messages import Event, Finished
from paceline.engine.plan import StepPlan, Verdict
from paceline.engine.policy import OrderPolicy, PriorityOrder
from paceline.engine.request import Request
from paceline.engine.scheduler import Scheduler, SchedulerConfig
from paceline.sampling.params import SamplingParams

LETTER_A = 97


def request_of(request_id: str, prompt: Sequence[int] = (1, 2, 3), **fields: Any) -> Request:
    """A request; fields of `SamplingParams` and of `Request` alike."""
    own = {name: fields.pop(name) for name in list(fields) if name in Request.__struct_fields__}
    params = SamplingParams(**{"seed": 0, "max_tokens": 8, "temperature": 0.0, **fields})
    stop_bytes = tuple(stop.encode() for stop in params.stop)
    return Request(id=request_id, prompt_ids=list(prompt), params=params, stop_bytes=stop_bytes, **own)


class Desk:
    """A scheduler on a virtual clock; every picked token is 97."""

    def __init__(
        self, *, num_blocks: int = 20, budget: int = 64, max_num_seqs: int = 8, max_waiting: int = 10, policy: OrderPolicy | None = None
    ) -> None:
        self.pool = BlockPool(num_blocks, LeastRecentlyUsed())
        config = SchedulerConfig(max_num_seqs, budget, max_waiting)
        self.scheduler = Scheduler(config, self.pool, PrefixCache(self.pool), policy or PriorityOrder())
        self.now = 0.0

    def submit(self, request: Request) -> None:
        """Queue a request; its tokens are letters."""
        self.scheduler.submit(request, b"root", lambda: end_check(request, lambda token_id, skips: bytes([token_id])))

    def plan(self) -> StepPlan:
        """Plan the next step, a second later."""
        self.now += 1.0
        return self.scheduler.plan(self.now)

    def commit(self, plan: StepPlan, token_id: int = LETTER_A) -> list[Event]:
        """Commit a plan whose rows all picked one token."""
        verdicts = [Verdict(piece.sequence, [token_id], 0) for piece in plan.slices if piece.num_rows]
        return self.scheduler.commit(plan, verdicts, self.now)

    def step(self, token_id: int = LETTER_A) -> tuple[StepPlan, list[Event]]:
        """Plan and commit."""
        plan = self.plan()
        return plan, self.commit(plan, token_id)

    def finish_all(self) -> list[Finished]:
        """Step until nothing is left; the finishes in order."""
        ends: list[Finished] = []
        while self.scheduler.has_work:
            ends += [event for event in self.step()[1] if isinstance(event, Finished)]
        return ends


def shares(plan: StepPlan) -> dict[str, int]:
    """How many tokens each request got."""
    return {piece.sequence.request.id: piece.num_new for piece in plan.slices}
