"""What every step computes, and what comes of it: pure bookkeeping over sequences and blocks.

    submit ─▶ waiting ──admit──▶ running ──commit──▶ … ──▶ finished
                 ▲                  │
                 └─────preempt──────┘          (keeps its tokens; its blocks stay as cache, so resuming is a prefix hit)

The one idea: every sequence has tokens and a count of computed ones; a step gives each a slice to catch up, within one
token budget. Sequences that only lack their newest token come first, then the others in the policy's order, running and
waiting alike. Chunked prefill, prefix hits, decode and verification of drafts are this one rule.

No clock, I/O, thread, array or text in here: `now` is given, tokens are integers, endings are callables.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paceline.backends.base import BLOCK_SIZE
from paceline.cache.block_pool import BlockPool
from paceline.cache.block_table import BlockTable, num_blocks_for
from paceline.cache.prefix_cache import PrefixCache, PrefixChain
from paceline.engine.messages import EngineStats, Event, Finished, Timings, Tokens
from paceline.engine.plan import StepPlan, Verdict
from paceline.engine.policy import OrderPolicy
from paceline.engine.request import FinishReason, Request
from paceline.engine.sequence import EndCheck, Ending, Sequence, State
from paceline.errors import CapacityError, ContextLengthError, RequestError


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of the scheduler, all resolved."""

    max_num_seqs: int
    """Most sequences with blocks."""
    max_num_batched_tokens: int
    """Token budget of a step."""
    max_waiting: int
    """Most sequences in the queue."""


def _key(seq: Sequence) -> tuple[int, ...]:
    return seq.key


class Scheduler:
    """Plans steps over live sequences; the sole owner of their states and block tables."""

    def __init__(self, config: SchedulerConfig, pool: BlockPool, prefix_cache: PrefixCache | None, policy: OrderPolicy) -> None:
        self._config = config
        self._pool = pool
        self._prefix_cache = prefix_cache
        self._policy = policy
        self._running: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._requests: dict[str, list[Sequence]] = {}
        self._deadlines: dict[str, float] = {}
        self._events: list[Event] = []
        self._num_submitted = 0
        self._num_held = 0
        self._num_preemptions = 0
        self._prefix_queries = 0
        self._prefix_hits = 0

    @property
    def has_work(self) -> bool:
        """Whether a sequence is live or an event unheard."""
        return bool(self._requests or self._events)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """The sequences that own blocks, in the policy's order."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """The queued sequences, in the policy's order."""
        return tuple(self._waiting)

    @property
    def drafting(self) -> Iterator[Sequence]:
        """The sequences that lack only their newest token: drafts proposed now are verified in the next step."""
        return (seq for seq in self._running if seq.is_decoding)

    def stats(self) -> EngineStats:
        """Gauges and totals of what the scheduler knows."""
        return EngineStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting) + self._num_held,
            num_blocks=self._pool.num_blocks,
            num_blocks_used=self._pool.num_used,
            num_preemptions=self._num_preemptions,
            prefix_queries=self._prefix_queries,
            prefix_hits=self._prefix_hits,
        )

    # ---- requests come and go --------------------------------------------------------------------------------------

    def submit(self, request: Request, root: bytes, new_end_check: Callable[[], EndCheck]) -> None:
        """Queue the request's sequences; those after the first are held until it has computed the prompt.

        Errors:  RequestError for an id in use · ContextLengthError when it can never fit the pool · CapacityError when the queue is full
        """
        n, num_queued = request.params.n, len(self._waiting) + self._num_held
        if request.id in self._requests:
            raise RequestError(f"A request `{request.id}` is already running.", param="request_id", code="invalid_value")
        self._refuse_misfit(request)
        if num_queued and num_queued + n > self._config.max_waiting:
            raise CapacityError(f"The queue is full ({num_queued} of {self._config.max_waiting} sequences wait).", retry_after_s=1.0)
        seqs = [Sequence(request, index, self._num_submitted + index, PrefixChain(root), new_end_check()) for index in range(n)]
        self._num_submitted += n
        for seq in seqs:
            seq.key = self._policy.key(seq)
        self._requests[request.id] = seqs
        self._num_held += n
        self._queue(seqs[0])
        if request.deadline_s is not None:
            self._deadlines[request.id] = request.arrived + request.deadline_s

    def abort(self, request_id: str, now: float, reason: FinishReason = "abort", message: str = "") -> None:
        """Finish every live sequence of a request; unknown ids are ignored."""
        self._pool.now = now
        for seq in list(self._requests.get(request_id, ())):
            self._finish(seq, Ending(reason), now, message)

    def fail(self, plan: StepPlan, message: str, now: float) -> list[Event]:
        """The step could not be computed: end its requests with reason `error`; give every event since the last call."""
        for piece in plan.slices:
            self.abort(piece.sequence.request.id, now, "error", message)
        return self._take_events()

    def abort_all(self, now: float) -> None:
        """Finish everything."""
        for request_id in list(self._requests):
            self.abort(request_id, now)

    def _refuse_misfit(self, request: Request) -> None:
        assert request.params.max_tokens is not None, "the front door resolves max_tokens"
        capacity = (self._pool.num_blocks - 1) * BLOCK_SIZE
        num_prompt = len(request.prompt_ids)
        if num_prompt + request.params.max_tokens - 1 > capacity:
            raise ContextLengthError(num_tokens=num_prompt, max_model_len=capacity, max_tokens=request.params.max_tokens)

    # ---- plan ------------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> StepPlan:
        """Give sequences their slices of the next step."""
        self._pool.now = now
        self._expire(now)
        plan = StepPlan()
        catching_up: deque[Sequence] = deque()
        for seq in tuple(self._running):
            if seq.is_decoding:
                self._extend(seq, plan, now)
            else:
                catching_up.append(seq)
        may_admit = True
        while plan.num_tokens < self._config.max_num_batched_tokens:
            if may_admit and self._waiting and not (catching_up and catching_up[0].key < self._waiting[0].key):
                may_admit = self._admit(self._waiting[0], plan, now)
            elif catching_up:
                self._extend(catching_up.popleft(), plan, now)
            else:
                break
        return plan

    def _expire(self, now: float) -> None:
        if self._deadlines and min(self._deadlines.values()) <= now:
            for request_id in [request_id for request_id, deadline in self._deadlines.items() if deadline <= now]:
                self.abort(request_id, now, "deadline")

    def _extend(self, seq: Sequence, plan: StepPlan, now: float) -> None:
        """Plan the next slice of a running sequence, as far as the budget goes and preempting others where blocks lack."""
        room = self._config.max_num_batched_tokens - plan.num_tokens
        if seq.state is not State.RUNNING or room <= 0:
            return
        assert seq.blocks is not None, "a running sequence owns blocks"
        num_new = min(seq.num_tokens - seq.num_computed, room)
        missing = seq.blocks.num_missing(seq.num_computed + num_new)
        if missing > self._pool.num_available and seq.draft:
            seq.draft = []
            num_new = min(seq.num_tokens - seq.num_computed, num_new)
            missing = seq.blocks.num_missing(seq.num_computed + num_new)
        while missing > self._pool.num_available:
            victim = self._running[-1]
            self._preempt(victim, plan, now)
            if victim is seq:
                return
        if missing:
            seq.blocks.grow(seq.num_computed + num_new)
        plan.add(seq, num_new)

    def _admit(self, seq: Sequence, plan: StepPlan, now: float) -> bool:
        """Give the first waiting sequence blocks and a slice; False when it must wait (and with it all behind it)."""
        if seq in plan.preempted:
            return False
        hits = self._prefix_cache.find(seq.chain, seq.token_ids) if self._prefix_cache else []
        while not self._has_room(seq, hits):
            victim = self._running[-1]
            if not self._policy.outranks(seq, victim):
                return False
            self._preempt(victim, plan, now)
        self._waiting.pop(0)
        self._start(seq, hits, now)
        self._extend(seq, plan, now)
        return True

    def _has_room(self, seq: Sequence, hits: list[int]) -> bool:
        """Whether a place is free, and blocks for all known tokens besides those that running sequences still lack."""
        if not self._running:
            return True
        if len(self._running) >= self._config.max_num_seqs:
            return False
        owed = sum(other.blocks.num_missing(len(other.token_ids)) for other in self._running if other.blocks is not None)
        num_idle_hits = sum(not self._pool.ref_count(block_id) for block_id in hits)
        return num_blocks_for(len(seq.token_ids)) - len(hits) + num_idle_hits + owed <= self._pool.num_available

    def _start(self, seq: Sequence, hits: list[int], now: float) -> None:
        seq.blocks = BlockTable(self._pool, hits)
        seq.num_computed = len(hits) * BLOCK_SIZE
        if seq.timeline.first_scheduled is None:
            self._prefix_queries += seq.num_prompt
            self._prefix_hits += seq.num_computed
        seq.timeline.admitted(now, seq.num_computed, max(0, seq.num_lost - seq.num_computed))
        seq.num_lost = 0
        seq.state = State.RUNNING
        insort(self._running, seq, key=_key)

    def _preempt(self, seq: Sequence, plan: StepPlan, now: float) -> None:
        """Take a sequence's blocks; it keeps its tokens and waits to resume."""
        assert seq.state is State.RUNNING, "only a running sequence can be preempted"
        assert seq.blocks is not None, "a running sequence owns blocks"
        plan.drop(seq)
        plan.preempted.append(seq)
        self._running.remove(seq)
        seq.blocks.release()
        seq.blocks = None
        seq.draft = []
        seq.num_lost, seq.num_computed = seq.num_computed, 0
        seq.timeline.preempted(now)
        self._num_preemptions += 1
        seq.state = State.WAITING
        insort(self._waiting, seq, key=_key)

    # ---- commit ----------------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, verdicts: list[Verdict], now: float) -> list[Event]:
        """Take in what a step computed; give every event since the last call. `verdicts`: one per slice with rows, in order."""
        self._pool.now = now
        rows = iter(verdicts)
        for piece in plan.slices:
            seq = piece.sequence
            verdict = next(rows) if piece.num_rows else None
            assert verdict is None or verdict.sequence is seq, "verdicts follow the plan's order"
            ending = self._gain(seq, verdict)
            seq.num_computed = min(piece.end, len(seq.token_ids) - 1)  # rejected drafts fall away, the newest token is to do
            seq.timeline.stepped(now, verdict is not None)
            if self._prefix_cache is not None and seq.blocks is not None:
                self._prefix_cache.register(seq.blocks, seq.chain, seq.token_ids, seq.num_computed)
            if seq.index == 0 and verdict is not None and seq.request.params.n > 1:
                self._queue_held(seq.request.id)
            if ending is not None:
                self._finish(seq, ending, now)
        return self._take_events()

    def _gain(self, seq: Sequence, verdict: Verdict | None) -> Ending | None:
        """Append picked tokens up to the one that ends the sequence, if any does."""
        if verdict is None:
            return None
        ending, count = None, 0
        seq.draft = []
        for token_id in verdict.picks:
            count += 1
            seq.token_ids.append(token_id)
            ending = seq.ends_with(token_id, seq.num_generated)
            if ending is not None:
                break
        logprobs = None if verdict.logprobs is None else verdict.logprobs[:count]
        self._events.append(Tokens(seq.request.id, seq.index, verdict.picks[:count], logprobs))
        return ending

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # ---- states ----------------------------------------------------------------------------------------------------

    def _queue(self, seq: Sequence) -> None:
        assert seq.state is State.HELD, "a sequence is queued once"
        seq.state = State.WAITING
        self._num_held -= 1
        insort(self._waiting, seq, key=_key)

    def _queue_held(self, request_id: str) -> None:
        for seq in self._requests[request_id]:
            if seq.state is State.HELD:
                self._queue(seq)

    def _finish(self, seq: Sequence, ending: Ending, now: float, message: str = "") -> None:
        """End a sequence: its blocks go back, its one `Finished` is queued."""
        assert seq.state is not State.FINISHED, "a sequence finishes once"
        if seq.state is State.RUNNING:
            self._running.remove(seq)
        elif seq.state is State.WAITING:
            del self._waiting[bisect_left(self._waiting, seq.key, key=_key)]
        else:
            self._num_held -= 1
        if seq.blocks is not None:
            seq.blocks.release()
            seq.blocks = None
        seq.state = State.FINISHED
        seq.timeline.finished(now)
        siblings = self._requests[seq.request.id]
        siblings.remove(seq)
        if not siblings:
            del self._requests[seq.request.id]
            self._deadlines.pop(seq.request.id, None)
        self._events.append(_finished(seq, ending, now, message))


def _finished(seq: Sequence, ending: Ending, now: float, message: str) -> Finished:
    line = seq.timeline
    timings = Timings(
        arrived=line.arrived,
        first_scheduled=line.first_scheduled,
        first_token=line.first_token,
        finished=now,
        preempted_s=line.preempted_s,
        steps=line.steps,
        cached_tokens=line.cached_tokens,
        recomputed_tokens=line.recomputed_tokens,
        preemptions=line.preemptions,
    )
    return Finished(seq.request.id, seq.index, ending.reason, ending.stop_reason, seq.num_prompt, seq.num_generated, timings, message)
