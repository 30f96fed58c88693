"""One HTTP call's requests under way: engine events in, pieces of text out, with usage and timings at the end.

The one idea: streaming and not streaming read the same pieces; only how they are written differs. A call may hold several
requests (a list of prompts) of several sequences (`n`); a *choice* is one sequence, numbered through the call.

It knows text, but neither JSON nor HTTP.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from paceline.engine.answer_text import end_token_places
from paceline.engine.client import error_of
from paceline.engine.messages import Finished, TokenLogprobs, Tokens
from paceline.engine.request import Request
from paceline.engine.streams import EventStream
from paceline.errors import PacelineError
from paceline.observe.metrics import ServerMetrics
from paceline.serve.timings import TimingReport, timing_report
from paceline.text.stream import TextStream


@dataclass(slots=True)
class Piece:
    """What one choice gained: text that is safe to show, its tokens' logprobs, and the end when it has come."""

    choice: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finished: Finished | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the whole call."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class _Choice:
    index: int
    text: TextStream
    num_tokens: int = 0
    last_token: float = 0.0


class Generation:
    """The pieces of one call, in order of arrival, and what is known at its end."""

    def __init__(self, stream: EventStream, make_text: Callable[[Request], TextStream], metrics: ServerMetrics, received: float) -> None:
        self.stream = stream
        self.received = received
        self.last_finished: Finished | None = None
        self._metrics = metrics
        self._cached: dict[str, int] = {}
        self._choices: dict[tuple[str, int], _Choice] = {}
        for request in stream.requests:
            for index in range(request.params.n):
                self._choices[request.id, index] = _Choice(len(self._choices), make_text(request))

    @property
    def num_choices(self) -> int:
        """Choices in the answer."""
        return len(self._choices)

    async def batches(self) -> AsyncIterator[list[Piece]]:
        """Pieces as they come, all of a step at once; an empty batch when nothing came for a while. Ends after every choice's end.

        Errors:  EngineError, CapacityError, RequestError when a sequence ended with reason `error`
        """
        while True:
            events = await self.stream.take()
            if not events and self.stream.is_finished:
                return
            now = time.monotonic()
            last = end_token_places(events)
            pieces: list[Piece] = []
            for place, event in enumerate(events):
                if isinstance(event, Tokens):
                    pieces.append(self._tokens(event, now, ends_text=place in last))
                elif event.reason != "error":
                    pieces.append(self._finish(event))
                else:
                    yield pieces
                    raise self._failure(event)
            yield pieces

    def _tokens(self, event: Tokens, now: float, *, ends_text: bool) -> Piece:
        choice = self._choices[event.request_id, event.index]
        metrics = self._metrics
        num_tokens = len(event.token_ids)
        if choice.num_tokens:
            gap = (now - choice.last_token) / num_tokens
            for _ in range(num_tokens):
                metrics.inter_token_latency.observe(gap)
        else:
            metrics.time_to_first_token.observe(now - self.received)
        choice.num_tokens += num_tokens
        choice.last_token = now
        metrics.generation_tokens += num_tokens
        shown = event.token_ids[:-1] if ends_text else event.token_ids
        return Piece(choice.index, choice.text.push(shown), event.token_ids, event.logprobs)

    def _finish(self, event: Finished) -> Piece:
        choice = self._choices[event.request_id, event.index]
        self._metrics.finished[event.reason] += 1
        self._cached[event.request_id] = max(self._cached.get(event.request_id, 0), event.timings.cached_tokens)
        if self.last_finished is None or event.timings.finished >= self.last_finished.timings.finished:
            self.last_finished = event
        self._observe(event)
        return Piece(choice.index, choice.text.finish(), [], None, event)

    def _failure(self, event: Finished) -> PacelineError:
        self._metrics.finished["error"] += 1
        self.stream.abort()
        return error_of(event.kind, event.message or "The engine failed on this request.")

    def _observe(self, event: Finished) -> None:
        metrics, timings = self._metrics, event.timings
        if event.index == 0:
            metrics.prompt_tokens += event.num_prompt_tokens
        metrics.e2e_latency.observe(timings.finished - self.received)
        if timings.first_scheduled is None:
            return
        metrics.queue_time.observe(max(timings.first_scheduled - self.stream.submitted, 0.0))
        metrics.inference_time.observe(timings.finished - timings.first_scheduled)
        if timings.first_token is not None:
            metrics.prefill_time.observe(timings.first_token - timings.first_scheduled)
            metrics.decode_time.observe(timings.finished - timings.first_token)

    def usage(self) -> Usage:
        """Tokens of the whole call so far; a prompt counts once, however many choices it has."""
        return Usage(
            sum(len(request.prompt_ids) for request in self.stream.requests),
            sum(choice.num_tokens for choice in self._choices.values()),
            sum(self._cached.values()),
        )

    def timings(self) -> TimingReport | None:
        """Where the time of the choice that finished last went, or None when none has finished."""
        last = self.last_finished
        if last is None:
            return None
        num_tokens = self._choices[last.request_id, last.index].num_tokens
        return timing_report(
            last.timings, received=self.received, submitted=self.stream.submitted, delivered=time.monotonic(), num_tokens=num_tokens
        )


def seeds(requests: Sequence[Request]) -> list[int]:
    """The seed of each request, drawn or given."""
    return [request.params.seed for request in requests if request.params.seed is not None]
