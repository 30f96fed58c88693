"""A real server in a process of its own, for cases that measure over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

READY_TIMEOUT_S = 300.0
ADDRESS = re.compile(r"open +(http://\S+?)/?$")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where the server is, and how long it took. Units: seconds on the monotonic clock."""

    url: str
    started: float
    ready: float


@contextmanager
def running_server(model: str, *options: str) -> Iterator[RunningServer]:
    """`paceline serve` on a free port of the loopback, ready. Errors: RuntimeError with its last lines when it does not get there."""
    command = [sys.executable, "-m", "paceline.cli.main", "serve", model, "--host", "127.0.0.1", "--port", "0", *options]
    started = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    alarm = threading.Timer(READY_TIMEOUT_S, process.kill)
    alarm.start()
    try:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if found := ADDRESS.search(line.rstrip()):
                break
        else:
            raise RuntimeError(f"`paceline serve {model}` did not get ready:\n" + "".join(lines[-20:]))
        ready = time.monotonic()
        alarm.cancel()
        threading.Thread(target=process.stderr.read, daemon=True).start()  # so that the pipe never fills
        yield RunningServer(found[1], started, ready)
    finally:
        alarm.cancel()
        process.terminate()
        process.wait()
