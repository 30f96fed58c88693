"""Server-sent events: writes a generation's pieces as they come, one write per step.

The one idea: the parts of a chunk that do not change are bytes made once per choice, so a token costs one JSON string and
one write. The answer's status is decided by the first batch: an error before it is an ordinary HTTP error, after it
an event `{"error": …}` and the end.

A reader that goes away, or takes nothing for `STALL_S`, has its requests aborted at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from starlette.types import Receive, Scope, Send

from paceline.errors import PacelineError
from paceline.log import log
from paceline.serve.failures import error_body, error_response
from paceline.serve.generation import Generation, Piece

PING_S = 15.0
STALL_S = 60.0
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class ChunkWriter(Protocol):
    """Says a generation's pieces as events in one API's shape."""

    def chunks(self, pieces: Iterable[Piece]) -> bytes:
        """The events of a batch of pieces."""
        ...

    def closing(self) -> bytes:
        """The last events before `[DONE]`."""
        ...


def event(body: bytes) -> bytes:
    """One server-sent event with this JSON as its data."""
    return b"data: " + body + b"\n\n"


async def watch_disconnect(receive: Receive, on_disconnect: Callable[[], object]) -> None:
    """Wait until the client is gone, then say so. Run as a task and cancelled when the answer is complete."""
    while (await receive())["type"] != "http.disconnect":
        pass
    on_disconnect()


class EventStreamAnswer:
    """An ASGI response that streams a generation."""

    def __init__(self, generation: Generation, writer: ChunkWriter) -> None:
        self._generation = generation
        self._writer = writer
        self._is_started = False
        self._last_write = time.monotonic()
        self._is_writing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end, an error, or the reader's leaving; the requests never outlive the answer."""
        task = asyncio.current_task()
        assert task is not None
        stream = self._generation.stream
        watcher = asyncio.create_task(watch_disconnect(receive, task.cancel))
        keeper = asyncio.create_task(self._keep(task))
        try:
            await self._stream(send)
        except PacelineError as error:
            await self._fail(error, scope, receive, send)
        except asyncio.CancelledError:
            log("info", "request.dropped", id=stream.requests[0].id)
            if not watcher.done() and not keeper.done():
                raise
        finally:
            stream.abort()
            watcher.cancel()
            keeper.cancel()

    async def _stream(self, send: Send) -> None:
        writer = self._writer
        async for pieces in self._generation.batches():
            if pieces:
                await self._write(send, writer.chunks(pieces))
            elif self._idle_s() > PING_S:
                await self._write(send, PING)
        await self._write(send, writer.closing() + DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, data: bytes) -> None:
        if not self._is_started:
            self._is_started = True
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        if data:
            self._is_writing = True
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._is_writing = False
            self._last_write = time.monotonic()

    async def _fail(self, error: PacelineError, scope: Scope, receive: Receive, send: Send) -> None:
        log("error", "request.failed", id=self._generation.stream.requests[0].id, error=error)
        if not self._is_started:
            await error_response(error)(scope, receive, send)
            return
        await send({"type": "http.response.body", "body": event(error_body(error)), "more_body": False})

    async def _keep(self, task: asyncio.Task[None]) -> None:
        """Ping while nothing is written; cut off a reader that does not take what is."""
        while True:
            await asyncio.sleep(PING_S / 2)
            if self._is_writing and self._idle_s() > STALL_S:
                task.cancel()
                return
            if not self._is_writing and self._idle_s() > PING_S:
                self._generation.stream.poke()

    def _idle_s(self) -> float:
        return time.monotonic() - self._last_write
