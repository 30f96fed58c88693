"""The `http` workload: 16 streamed chats against a server that this process starts, ours or a peer's.

The one idea: one client for both. It is the load generator of `paceline bench serve`; all requests are sent at once and the clock runs
until the last answer is whole.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.bench.compare.child import MEASURE_TIMEOUT_S, Child, closing_on_error
from paceline.bench.compare.workloads import Workload
from paceline.bench.http_stream import Endpoint, read_all
from paceline.bench.serve import Load, LoadRow, run_load, served_model
from paceline.errors import EngineError

POLL_S = 0.1


class ServerRunner:
    """A runner around a server of its own on a free port of the loopback."""

    def __init__(self, command: Callable[[int], Sequence[str | Path]], name: str) -> None:
        port = free_port()
        self._endpoint = Endpoint.parse(f"http://127.0.0.1:{port}")
        self._seeds = itertools.count(time.time_ns())
        self._child = Child(command(port), name=name)
        with closing_on_error(self._child):
            self._child.drain()
            self._wait_until_ready()
            self._model = asyncio.run(served_model(self._endpoint))

    def measure(self, workload: Workload) -> list[float]:
        """Seconds of each run. Errors: EngineError when an answer fails or is cut short."""
        return [self._run(workload) for _ in range(workload.repeat)]

    def close(self) -> None:
        """End the server."""
        self._child.close()

    def _run(self, workload: Workload) -> float:
        self._child.extend(MEASURE_TIMEOUT_S)
        load = Load(self._endpoint, self._model, workload.prompt_tokens, workload.new_tokens, next(self._seeds))
        (row,) = asyncio.run(run_load(load, [workload.streams], lambda level: level))
        check_row(row, workload)
        return row.seconds

    def _wait_until_ready(self) -> None:
        while not self._is_ready():
            if self._child.has_ended():
                raise self._child.failure("did not get ready")
            time.sleep(POLL_S)

    def _is_ready(self) -> bool:
        try:
            asyncio.run(read_all(self._endpoint, "GET", "/health"))
        except EngineError:
            return False
        return True


def check_row(row: LoadRow, workload: Workload) -> None:
    """Errors: EngineError when an answer failed, or the answers hold fewer or more tokens than were asked for"""
    if row.errors:
        raise EngineError(f"{row.errors} of {row.requests} chats failed. {row.first_error}")
    if row.output_tokens != workload.num_tokens:
        raise EngineError(f"The answers hold {row.output_tokens} tokens; expected {workload.num_tokens}.")


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
