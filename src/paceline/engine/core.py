"""The engine: one owner of model, memory and requests; requests in, events out.

The one idea: `step` is the whole algorithm. Plan and commit are pure; the forward pass is the only thing between them.

It is not thread-safe, holds no queue of commands and knows no text: `client` puts it into a process, `offline` beside the caller.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paceline.backends.base import Backend
from paceline.cache.prefix_cache import root_digest
from paceline.engine.endings import TokenBytes, end_check
from paceline.engine.messages import EngineInfo, EngineStats, Event
from paceline.engine.plan import StepPlan
from paceline.engine.request import Request
from paceline.engine.scheduler import Scheduler
from paceline.engine.step import run_step
from paceline.errors import EngineError
from paceline.log import log
from paceline.planner.time_model import TimeModel
from paceline.planner.time_store import KeptTimeModel
from paceline.sampling.sampler import Sampler

KEEP_EVERY_S = 180.0
"""Seconds of work between two savings of the time model."""


class Engine:
    """Runs requests to their ends, a step at a time."""

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler,
        info: EngineInfo,
        *,
        model_digest: str,
        token_bytes: TokenBytes,
        clock: Callable[[], float],
    ) -> None:
        self.info = info
        self._backend = backend
        self._scheduler = scheduler
        self._sampler = Sampler(backend.pick)
        self._model_digest = model_digest
        self._token_bytes = token_bytes
        self._clock = clock
        self._times = KeptTimeModel()
        self._kept = clock()
        self._num_steps = 0
        self._step_tokens = 0
        self._step_s = 0.0

    @property
    def time_model(self) -> TimeModel:
        """How long steps take, learned from every step."""
        return self._times.model

    def remember(self, times: KeptTimeModel) -> None:
        """Continue what earlier runs learned; it is kept every few minutes of work, and when the engine closes."""
        self._times = times

    def has_work(self) -> bool:
        """Whether `step` would do or say anything."""
        return self._scheduler.has_work

    def submit(self, request: Request) -> None:
        """Queue a request made at the front door; it will end in exactly one `Finished` per sequence index.

        Errors:  RequestError for an id in use · ContextLengthError when it can never fit · CapacityError when the queue is full
        """
        root = root_digest(self._model_digest, self._backend.numerics, request.cache_salt)
        self._scheduler.submit(request, root, lambda: end_check(request, self._token_bytes))

    def abort(self, request_id: str) -> None:
        """Stop a request now, freeing its blocks; the next frame says so. Unknown ids are ignored."""
        self._scheduler.abort(request_id, self._clock())

    def abort_all(self) -> None:
        """Stop every request."""
        self._scheduler.abort_all(self._clock())

    def step(self) -> list[Event]:
        """Advance every planned sequence by one forward pass; return what the clients must hear."""
        started = self._clock()
        plan = self._scheduler.plan(started)
        events = self._advance(plan)
        self._count(plan, self._clock() - started)
        if started - self._kept > KEEP_EVERY_S:
            self._kept = started
            self._times.keep()
        return events

    def stats(self) -> EngineStats:
        """Gauges and totals right now."""
        return msgspec.structs.replace(
            self._scheduler.stats(), num_steps=self._num_steps, step_tokens=self._step_tokens, step_s=self._step_s
        )

    def close(self) -> None:
        """Keep the time model; give back the backend's threads and memory. Idempotent."""
        self._times.keep()
        self._backend.close()

    def _advance(self, plan: StepPlan) -> list[Event]:
        try:
            verdicts = run_step(plan, self._backend, self._sampler) if plan.slices else []
        except EngineError as error:
            log("error", "engine.step_failed", num_slices=len(plan.slices), error=error)
            return self._scheduler.fail(plan, "The engine failed in this step.", self._clock())
        return self._scheduler.commit(plan, verdicts, self._clock())

    def _count(self, plan: StepPlan, step_s: float) -> None:
        if plan.slices:
            self._num_steps += 1
            self._step_tokens += plan.num_tokens
            self._step_s += step_s
            self.time_model.observe(plan.work(), step_s)
