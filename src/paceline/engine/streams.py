"""Events on their way from the engine to whoever asked: one bounded stream per submission, and the router that fills them.

The one idea: the engine never waits for a reader and a reader never costs more than a bound. A stream keeps what its
reader has not taken; when that exceeds `MAX_UNREAD_TOKENS` the request is aborted and the stream ends with reason `abort`.

All of it runs on one event loop's thread; nothing here is locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from paceline.engine.messages import EngineStats, Event, Finished, Frame, finished_outside
from paceline.engine.request import FinishReason, Request

MAX_UNREAD_TOKENS = 8192
"""Tokens that a stream holds for a slow reader; a fast step makes a few hundred a second, so this is tens of seconds."""


class EventStream:
    """The events of one submission (one or more requests), taken in batches: all that has come since the last take."""

    def __init__(self, requests: Sequence[Request], abort: Callable[[EventStream], None]) -> None:
        self.requests = tuple(requests)
        self.submitted = time.monotonic()
        self._abort = abort
        self._open = {(request.id, index): request for request in requests for index in range(request.params.n)}
        self._events: list[Event] = []
        self._num_unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_poked = False

    @property
    def is_finished(self) -> bool:
        """Whether every sequence has had its finish event (it may still be unread)."""
        return not self._open

    async def take(self) -> list[Event]:
        """Wait until something is there, then give all of it; empty after a `poke`, or at the end of the stream."""
        if not self._events and not self._is_poked and self._open:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events, self._num_unread, self._is_poked = self._events, [], 0, False
        return events

    def poke(self) -> None:
        """Wake a waiting reader with an empty batch."""
        self._is_poked = True
        self._wake()

    def abort(self) -> None:
        """Ask the engine to stop what is still open; the finish events still come. Idempotent."""
        if self._open:
            self._abort(self)

    def push(self, event: Event) -> None:
        """Take an event from the engine (the router's side)."""
        key = (event.request_id, event.index)
        if key not in self._open:
            return
        self._events.append(event)
        if isinstance(event, Finished):
            del self._open[key]
        else:
            self._num_unread += len(event.token_ids)
            if self._num_unread > MAX_UNREAD_TOKENS:
                self.abort()
                self.end("abort", f"The reader fell {self._num_unread} tokens behind.")
        self._wake()

    def end(self, reason: FinishReason, message: str) -> None:
        """Finish every sequence that is still open, here and now, without the engine."""
        for (_, index), request in self._open.items():
            self._events.append(finished_outside(request, index, reason, message, time.monotonic()))
        self._open.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventRouter:
    """Gives each event of a frame to the stream of its request."""

    def __init__(self) -> None:
        self.stats = EngineStats()
        self._streams: dict[str, EventStream] = {}
        self._num_unfinished: dict[EventStream, int] = {}

    @property
    def num_open(self) -> int:
        """Sequences that the engine has not finished."""
        return sum(self._num_unfinished.values())

    def add(self, stream: EventStream) -> None:
        """Route the stream's requests to it."""
        self._num_unfinished[stream] = sum(request.params.n for request in stream.requests)
        for request in stream.requests:
            self._streams[request.id] = stream

    def route(self, frame: Frame) -> None:
        """Hand out a frame's events and keep its stats; events of unknown requests are dropped (their reader was cut off)."""
        self.stats = frame.stats
        for event in frame.events:
            stream = self._streams.get(event.request_id)
            if stream is not None:
                stream.push(event)
                if isinstance(event, Finished):
                    self._count_finish(stream)

    def _count_finish(self, stream: EventStream) -> None:
        """The engine has ended a sequence; a stream that was cut off for its reader stays known until all of them are."""
        self._num_unfinished[stream] -= 1
        if not self._num_unfinished[stream]:
            self.remove(stream)

    def remove(self, stream: EventStream) -> None:
        """Forget a stream; what the engine still says of it is dropped."""
        self._num_unfinished.pop(stream, None)
        for request in stream.requests:
            self._streams.pop(request.id, None)

    def end_all(self, message: str) -> None:
        """The engine is gone: end every open stream with reason `error`."""
        for stream in set(self._streams.values()):
            stream.end("error", message)
        self._streams.clear()
        self._num_unfinished.clear()
