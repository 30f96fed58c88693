"""Runs one scenario on the real scheduler, cache and sampler over the hash backend, and checks everything.

A failure raises `Violation` (or an assertion of the engine's own); it replays with
`python -m benchmarks.simulate --seed SEED`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random

from paceline.backends.base import PoolShape, StepInput, StepOutput
from paceline.backends.simulated import HashBackend
from paceline.cache.block_pool import BlockPool
from paceline.cache.eviction import EvictionPolicy, FirstInFirstOut, LeastRecentlyUsed
from paceline.cache.prefix_cache import PrefixCache
from paceline.cache.value import ValuePolicy
from paceline.engine.core import Engine
from paceline.engine.messages import EngineInfo, Event, Finished, Tokens
from paceline.engine.plan import StepPlan
from paceline.engine.policy import PriorityOrder
from paceline.engine.request import Request
from paceline.engine.scheduler import Scheduler, SchedulerConfig
from paceline.errors import CapacityError, ContextLengthError, EngineError
from tests.simulation import invariants
from tests.simulation.invariants import require
from tests.simulation.oracle import Answer, answer
from tests.simulation.scenario import MAX_BLOCKS_PER_SEQ, VOCAB_SIZE, Arrival, Scenario, make_scenario, token_text


@dataclass(frozen=True)
class Outcome:
    """What one scenario did; for knowing that the rare things happen."""

    num_steps: int
    num_requests: int
    num_refused: int
    num_preemptions: int
    num_cached_tokens: int
    num_accepted_drafts: int
    reasons: dict[str, int]


class FailingBackend(HashBackend):
    """A hash backend whose given steps fail before they compute anything."""

    def __init__(self, pool: PoolShape, failing_steps: frozenset[int]) -> None:
        super().__init__(VOCAB_SIZE, pool)
        self._failing_steps = failing_steps
        self._num_steps = 0

    def forward(self, step: StepInput) -> StepOutput:
        """See `Backend.forward`."""
        self._num_steps += 1
        if self._num_steps in self._failing_steps:
            raise EngineError("This step was told to fail.")
        return super().forward(step)


class CheckedScheduler(Scheduler):
    """A scheduler whose every plan is checked."""

    scenario: Scenario

    def plan(self, now: float) -> StepPlan:
        """See `Scheduler.plan`."""
        plan = super().plan(now)
        invariants.check_plan(plan, self, self.scenario, now)
        return plan


def eviction_policy(scenario: Scenario) -> EvictionPolicy:
    """Each policy takes its turn."""
    return (LeastRecentlyUsed(), ValuePolicy(scenario.num_blocks), FirstInFirstOut())[scenario.seed % 3]


class Rehearsal:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 0.0
        self.rng = Random(scenario.seed)
        self.pool = BlockPool(scenario.num_blocks, eviction_policy(scenario))
        self.cache = PrefixCache(self.pool) if scenario.has_prefix_cache else None
        config = SchedulerConfig(scenario.max_num_seqs, scenario.max_num_batched_tokens, scenario.max_waiting)
        self.scheduler = CheckedScheduler(config, self.pool, self.cache, PriorityOrder())
        self.scheduler.scenario = scenario
        self.backend = FailingBackend(PoolShape(scenario.num_blocks, MAX_BLOCKS_PER_SEQ), scenario.failing_steps)
        info = EngineInfo("m", "f", "hash", VOCAB_SIZE, 128, scenario.num_blocks, 16, scenario.max_num_seqs, 1, 1, 0.0)
        self.engine = Engine(
            self.backend,
            self.scheduler,
            info,
            model_digest="m",
            token_bytes=lambda token_id, skips: token_text(token_id),
            clock=lambda: self.now,
        )
        self.requests: dict[str, Request] = {}
        self.answers: dict[tuple[str, int], Answer] = {}
        self.said: dict[tuple[str, int], list[int]] = {}
        self.ends: dict[tuple[str, int], Finished] = {}
        self.num_refused = 0
        self.num_accepted = 0

    def run(self) -> Outcome:
        """Play the scenario to its end."""
        pending = sorted(self.scenario.arrivals, key=lambda arrival: arrival.arrives)
        limit = self._step_limit()
        for step in itertools.count():
            self.now = float(step)
            while pending and pending[0].arrives <= step:
                self._submit(pending.pop(0))
            for arrival in self.scenario.arrivals:
                if arrival.aborts == step:
                    self.engine.abort(arrival.request.id)
            if not self.engine.has_work() and not pending:
                break
            require(step <= limit, "everybody finishes in bounded time")
            self._step()
        self._check_end()
        return self._outcome()

    def _step_limit(self) -> int:
        """Steps that even one token a step, with every sequence computed anew for each token of the others, could not need."""
        work = sum(a.request.params.n * (len(a.request.prompt_ids) + 24) for a in self.scenario.arrivals)
        return 60 + 4 * work

    def _submit(self, arrival: Arrival) -> None:
        request = arrival.request
        try:
            self.engine.submit(request)
        except CapacityError:
            self.num_refused += 1
            return
        except ContextLengthError as error:
            raise invariants.Violation("every scenario's request fits the pool") from error
        self.requests[request.id] = request
        for index in range(request.params.n):
            self.answers[request.id, index] = answer(request, index)
            self.said[request.id, index] = []

    def _step(self) -> None:
        for event in self.engine.step():
            self._hear(event)
        invariants.check_blocks(self.scheduler, self.pool)
        invariants.check_progress(self.scheduler)
        if self.cache is not None:
            invariants.check_cache(self.cache, self.pool, self.backend)
        self._draft()

    def _hear(self, event: Event) -> None:
        key = (event.request_id, event.index)
        require(key in self.said, "events belong to submitted sequences")
        require(key not in self.ends, "nothing follows a finish")
        if isinstance(event, Tokens):
            self._hear_tokens(key, event)
        else:
            self.ends[key] = event

    def _hear_tokens(self, key: tuple[str, int], event: Tokens) -> None:
        said = self.said[key]
        said += event.token_ids
        self.num_accepted += len(event.token_ids) - 1
        require(bool(event.token_ids), "a token event has tokens")
        require(tuple(said) == self.answers[key].token_ids[: len(said)], "a sequence says what it would say alone")
        wants_logprobs = self.requests[key[0]].params.logprobs is not None
        require(wants_logprobs == (event.logprobs is not None), "log-probabilities come when asked for")
        require(event.logprobs is None or len(event.logprobs) == len(event.token_ids), "every token has its log-probability")

    def _draft(self) -> None:
        """Propose tokens: right ones up to a random depth, then wrong ones."""
        if not self.scenario.draft_length:
            return
        for seq in self.scheduler.drafting:
            right = list(self.answers[seq.request.id, seq.index].token_ids[seq.num_generated :])
            num_right = self.rng.randint(0, self.scenario.draft_length)
            wrong = [self.rng.randrange(VOCAB_SIZE) for _ in range(self.scenario.draft_length)]
            seq.propose((right[:num_right] + wrong)[: self.rng.randint(0, self.scenario.draft_length)])

    def _check_end(self) -> None:
        require(self.ends.keys() == self.answers.keys(), "every sequence finishes exactly once")
        require(not self.scheduler.running and not self.scheduler.waiting, "nobody is left")
        require(self.pool.num_used == 0, "every block was given back")
        for key, end in self.ends.items():
            self._check_finish(key, end)

    def _check_finish(self, key: tuple[str, int], end: Finished) -> None:
        request, expected, said = self.requests[key[0]], self.answers[key], self.said[key]
        require(end.num_prompt_tokens == len(request.prompt_ids) and end.num_tokens == len(said), "usage counts every token")
        if end.reason in ("abort", "deadline", "error"):
            self._check_cut(request, end)
        else:
            require(tuple(said) == expected.token_ids, "a sequence says all that it would say alone")
            require((end.reason, end.stop_reason) == (expected.reason, expected.stop_reason), "the finish reason is honest")
        cached = end.timings.cached_tokens
        require(
            cached % 16 == 0 and cached <= (len(request.prompt_ids) - 1) // 16 * 16, "cached tokens are whole blocks before the last token"
        )
        require(cached <= self._longest_known_prefix(request, key[1]), "cached tokens were computed before, under the same salt")

    def _check_cut(self, request: Request, end: Finished) -> None:
        if end.reason == "deadline":
            require(
                request.deadline_s is not None and end.timings.finished >= request.arrived + request.deadline_s, "a deadline had passed"
            )
        elif end.reason == "abort":
            require(any(a.request.id == request.id and a.aborts is not None for a in self.scenario.arrivals), "an abort was asked for")
        else:
            require(bool(self.scenario.failing_steps), "an error had a failing step")

    def _longest_known_prefix(self, request: Request, index: int) -> int:
        """The longest prefix of the prompt that some other sequence of the salt held."""
        longest = 0
        for key, said in self.said.items():
            other = self.requests[key[0]]
            if other.cache_salt == request.cache_salt and key != (request.id, index):
                tokens = [*other.prompt_ids, *said]
                equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(tokens, request.prompt_ids, strict=False))
                longest = max(longest, sum(1 for _ in equal))
        return longest

    def _outcome(self) -> Outcome:
        stats = self.engine.stats()
        reasons: dict[str, int] = {}
        for end in self.ends.values():
            reasons[end.reason] = reasons.get(end.reason, 0) + 1
        return Outcome(
            num_steps=stats.num_steps,
            num_requests=len(self.requests),
            num_refused=self.num_refused,
            num_preemptions=stats.num_preemptions,
            num_cached_tokens=stats.prefix_hits,
            num_accepted_drafts=self.num_accepted,
            reasons=reasons,
        )


def run_seed(seed: int) -> Outcome:
    """Play the scenario of a seed. Errors: AssertionError naming what does not hold."""
    return Rehearsal(make_scenario(seed)).run()
