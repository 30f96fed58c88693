"""How a front reaches the engine: submit, abort, listen; in this process or in a child, with the same messages.

The one idea: `EngineClient` is all that the server knows of the engine. Whatever happens to the engine, every submitted
request ends in exactly one finish event per sequence: when the engine dies, the client ends the open ones with `error`.

A client belongs to one asyncio event loop. It restarts nothing.
"""

from __future__ import annotations

import asyncio
import queue
import subprocess
import threading
from collections.abc import Callable
from typing import Literal, Protocol

from paceline import errors
from paceline.engine.frames import FrameReader, decode_report, encode_frame
from paceline.engine.launch import EngineProcess
from paceline.engine.loop import SteppedEngine, failed_by, run_loop
from paceline.engine.messages import (
    PROTOCOL_VERSION,
    Abort,
    Command,
    EngineInfo,
    EngineStats,
    Failed,
    Frame,
    Progress,
    Ready,
    Report,
    Shutdown,
    Submit,
)
from paceline.engine.request import Request
from paceline.engine.streams import EventRouter, EventStream
from paceline.errors import CapacityError, EngineError, PacelineError, RequestError
from paceline.log import log

ClientState = Literal["loading", "ready", "dead", "closed"]
CLOSE_TIMEOUT_S = 5.0
RETRY_AFTER_S = 1.0


class EngineClient(Protocol):
    """A front's view of the engine."""

    @property
    def state(self) -> ClientState:
        """Whether the engine loads, takes requests, has died, or was closed."""
        ...

    @property
    def info(self) -> EngineInfo:
        """What the engine turned out to be. Errors: CapacityError while it loads."""
        ...

    @property
    def stats(self) -> EngineStats:
        """Gauges and totals after the last step."""
        ...

    @property
    def load_progress(self) -> tuple[str, float]:
        """The loading stage and its fraction from 0 to 1."""
        ...

    async def start(self) -> EngineInfo:
        """Wait until the engine is ready. Errors: ModelError, EngineError with the engine's message."""
        ...

    def submit(self, *requests: Request) -> EventStream:
        """Queue requests whose events come on one stream.

        Errors:  CapacityError when loading or full · RequestError for more than would ever fit · EngineError when dead
        """
        ...

    async def close(self) -> None:
        """Abort everything and end the engine; idempotent."""
        ...


class RoutedClient:
    """What both clients share: the state, the open streams, and the meaning of each report."""

    def __init__(self, *, max_open: int) -> None:
        """`max_open` is the most sequences that are open at once."""
        self.state: ClientState = "loading"
        self.load_progress = ("starting", 0.0)
        self._max_open = max_open
        self._router = EventRouter()
        self._info: EngineInfo | None = None
        self._failure = ""
        self._is_closing = False
        self._started: asyncio.Future[EngineInfo] | None = None

    @property
    def info(self) -> EngineInfo:
        """What the engine turned out to be. Errors: CapacityError while it loads."""
        if self._info is None:
            raise CapacityError("The model is still loading.", retry_after_s=RETRY_AFTER_S)
        return self._info

    @property
    def stats(self) -> EngineStats:
        """Gauges and totals after the last step."""
        return self._router.stats

    def submit(self, *requests: Request) -> EventStream:
        """Queue requests whose events come on one stream.

        Errors:  CapacityError when loading or full · RequestError for more than would ever fit · EngineError when dead
        """
        if self.state == "loading":
            raise CapacityError("The model is still loading.", retry_after_s=RETRY_AFTER_S)
        if self.state != "ready":
            raise EngineError(self._failure or "The engine has been closed.")
        self._refuse_excess(sum(request.params.n for request in requests))
        frames = [Submit(request) for request in requests]
        stream = EventStream(requests, self._abort)
        self._router.add(stream)
        for frame in frames:
            self._send(frame)
        return stream

    def _refuse_excess(self, num_new: int) -> None:
        if num_new > self._max_open:
            message = f"{num_new} sequences are asked for at once; this engine holds at most {self._max_open}, running and waiting."
            raise RequestError(message, param="n", code="invalid_value")
        if self._router.num_open + num_new > self._max_open:
            message = f"{self._router.num_open} sequences are open; the limit is {self._max_open}."
            raise CapacityError(message, retry_after_s=RETRY_AFTER_S)

    def _abort(self, stream: EventStream) -> None:
        if self.state == "ready":
            for request in stream.requests:
                self._send(Abort(request.id))

    def _send(self, command: Command) -> None:
        raise NotImplementedError

    def _receive(self, report: Report) -> None:
        match report:
            case Frame():
                self._router.route(report)
            case Progress(stage, fraction):
                self.load_progress = (stage, fraction)
            case Ready(version) if version != PROTOCOL_VERSION:
                self._die(f"The engine speaks version {version} of the protocol; expected {PROTOCOL_VERSION}.")
            case Ready(_, info):
                self._info, self.state = info, "ready"
                if self._started is not None and not self._started.done():
                    self._started.set_result(info)
            case Failed(kind, message):
                self._die(message, kind)

    def _die(self, message: str, kind: str = "EngineError") -> None:
        if self.state in ("dead", "closed"):
            return
        if self.state == "ready" and not self._is_closing:
            log("error", "engine.died", error=message)
        self.state, self._failure = "dead", message
        self._router.end_all(message)
        if self._started is not None and not self._started.done():
            self._started.set_exception(error_of(kind, message))

    async def _wait_ready(self) -> EngineInfo:
        if self.state == "dead":
            raise EngineError(self._failure)
        self._started = self._started or asyncio.get_running_loop().create_future()
        return await self._started


def error_of(kind: str, message: str) -> PacelineError:
    """The error that another process has told of by its class's name; an `EngineError` for a name that says nothing here."""
    match getattr(errors, kind, None):
        case errors.ModelError:
            return errors.ModelError(message)
        case errors.CapacityError:
            return CapacityError(message, retry_after_s=RETRY_AFTER_S)
        case errors.ContextLengthError:
            return RequestError(message, param="messages", code="context_length_exceeded")
        case type() as known if issubclass(known, RequestError):
            return known(message)
    return EngineError(message)


class ChildClient(RoutedClient, asyncio.Protocol):
    """The engine in a child process, behind a socket."""

    def __init__(self, child: EngineProcess, *, max_open: int) -> None:
        super().__init__(max_open=max_open)
        self._child = child
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()

    async def start(self) -> EngineInfo:
        """Connect to the child and wait until it is ready. Errors: ModelError, EngineError with the child's message."""
        self._started = asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_connection(lambda: self, sock=self._child.socket)
        return await self._wait_ready()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is ours to write."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the child."""
        try:
            for payload in self._reader.feed(data):
                self._receive(decode_report(payload))
        except EngineError as error:
            self._die(str(error))
            self._child.process.kill()

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: the child closed its end, or is gone."""
        self._ended.set()
        self._die(f"The engine process ended unexpectedly ({_exit_words(self._child.process)}).")

    def _send(self, command: Command) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(command))

    async def close(self) -> None:
        """Ask the child to end, wait for it, and kill it when it does not; idempotent."""
        process = self._child.process
        self._is_closing = True
        if self.state == "loading":
            process.terminate()
        if self._transport is not None and self.state != "closed":
            self._send(Shutdown())
            try:
                await asyncio.wait_for(self._ended.wait(), CLOSE_TIMEOUT_S)
            except TimeoutError:
                process.kill()
            self._transport.close()
        elif self._transport is None:
            self._child.socket.close()
        self._router.end_all("The engine has been closed.")
        self.state = "closed"
        if process.poll() is None:
            await asyncio.to_thread(_reap, process)


def _exit_words(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return "it closed its socket"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class QueueCommands:
    """Commands from a thread-safe queue; None in the queue is its end."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()

    def take(self, *, wait: bool) -> list[Command] | None:
        """All commands that have arrived, or None after the end."""
        commands: list[Command] = []
        while True:
            try:
                command = self.queue.get(block=wait and not commands)
            except queue.Empty:
                return commands
            if command is None:
                return None
            commands.append(command)


class InProcessClient(RoutedClient):
    """The engine on a thread of this process; the same loop and the same messages, passed by reference."""

    def __init__(self, engine: SteppedEngine, *, max_open: int) -> None:
        super().__init__(max_open=max_open)
        self._engine = engine
        self._commands = QueueCommands()
        self._thread: threading.Thread | None = None

    async def start(self) -> EngineInfo:
        """Start the engine's thread."""
        loop = asyncio.get_running_loop()

        def receive(report: Report) -> None:
            loop.call_soon_threadsafe(self._receive, report)

        self._receive(Ready(PROTOCOL_VERSION, self._engine.info))
        self._thread = threading.Thread(target=self._run, args=(receive,), name="paceline-engine", daemon=True)
        self._thread.start()
        return self.info

    def _run(self, receive: Callable[[Report], None]) -> None:
        try:
            run_loop(self._engine, self._commands, receive)
        except Exception as error:
            receive(failed_by(error))

    def _send(self, command: Command) -> None:
        self._commands.queue.put(command)

    async def close(self) -> None:
        """End the thread and give back the engine's memory; idempotent."""
        if self.state == "closed":
            return
        if self._thread is not None:
            self._send(Shutdown())
            await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_S)
        self._router.end_all("The engine has been closed.")
        self.state = "closed"
        self._engine.close()
