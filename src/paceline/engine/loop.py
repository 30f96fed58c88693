"""The engine's one thread: take commands, advance a step, report; the same loop in a child process and in a thread.

The one idea: commands are read between steps, without waiting while there is work and with a blocking wait while there
is none, so an idle engine uses no CPU and a busy one never waits for a client. One frame goes out per step.

It knows neither sockets nor threads: where commands come from and where reports go are arguments.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Protocol

from paceline.engine.messages import (
    Abort,
    Command,
    EngineInfo,
    EngineStats,
    Event,
    Failed,
    Frame,
    Report,
    Shutdown,
    Submit,
    finished_outside,
)
from paceline.engine.request import Request
from paceline.errors import CapacityError, PacelineError, RequestError


class SteppedEngine(Protocol):
    """What the loop needs of an engine."""

    @property
    def info(self) -> EngineInfo:
        """What the engine turned out to be."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a request. Errors: RequestError, CapacityError."""
        ...

    def abort(self, request_id: str) -> None:
        """Stop a request; the next step reports its end. Unknown ids are ignored."""
        ...

    def abort_all(self) -> None:
        """Stop every request."""
        ...

    def has_work(self) -> bool:
        """Whether a step would do or report something."""
        ...

    def step(self) -> list[Event]:
        """Advance by one forward pass and return what clients must hear."""
        ...

    def stats(self) -> EngineStats:
        """Gauges and running totals."""
        ...

    def close(self) -> None:
        """Give back threads and memory; idempotent."""
        ...


class CommandSource(Protocol):
    """Where commands come from."""

    def take(self, *, wait: bool) -> list[Command] | None:
        """All commands that have arrived (with `wait`, at least one), or None when there will be no more."""
        ...


def run_loop(engine: SteppedEngine, commands: CommandSource, send: Callable[[Report], None]) -> None:
    """Serve commands until the source ends or a `Shutdown` comes; on shutdown everything open is aborted and answered."""
    is_last = False
    while not is_last:
        batch = commands.take(wait=not engine.has_work())
        if batch is None:
            return
        events: list[Event] = []
        for command in batch:
            match command:
                case Submit(request):
                    events += _submit(engine, request)
                case Abort(request_id):
                    engine.abort(request_id)
                case Shutdown():
                    engine.abort_all()
                    is_last = True
        if engine.has_work():
            events += engine.step()
        send(Frame(events, engine.stats()))


def _submit(engine: SteppedEngine, request: Request) -> list[Event]:
    try:
        engine.submit(request)
    except (RequestError, CapacityError) as error:
        return refusal(request, error)
    return []


def refusal(request: Request, error: PacelineError) -> list[Event]:
    """The finish events of a request that never ran: one per sequence, reason `error`."""
    message, kind = str(error), type(error).__name__
    return [finished_outside(request, index, "error", message, request.arrived, kind) for index in range(request.params.n)]


def failed_by(error: Exception) -> Failed:
    """What a front is told of an engine that stopped; the details of an unexpected error go to stderr alone."""
    if isinstance(error, PacelineError):
        return Failed(type(error).__name__, str(error))
    traceback.print_exception(error)
    return Failed("EngineError", f"The engine stopped on an unexpected {type(error).__name__}.")
