"""A real `paceline serve` in a process of its own, on a free port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]


@dataclass
class LiveServer:
    """A running server: where it is, and what it has written to stderr."""

    process: subprocess.Popen[str]
    url: str
    started: float
    """`time.monotonic()` just before the process was started."""
    lines: list[str] = field(default_factory=list)

    def get(self, path: str) -> httpx.Response:
        """A GET."""
        return httpx.get(self.url + path, timeout=60)

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        """A POST of JSON."""
        return httpx.post(self.url + path, json=body, timeout=60, **options)

    def stream(self, path: str, body: dict[str, Any]) -> list[str]:
        """The data of each event of a streamed answer."""
        return [data for _, data in self.timed_stream(path, body)]

    def timed_stream(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, str]]:
        """The data of each event of a streamed answer with the moment it came."""
        with httpx.stream("POST", self.url + path, json=body | {"stream": True}, timeout=60) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield time.monotonic(), line.removeprefix("data: ")

    def metric(self, name: str) -> float:
        """One sample of `/metrics`."""
        line = next(line for line in self.get("/metrics").text.splitlines() if line.startswith(name + "{"))
        return float(line.rsplit(" ", 1)[1])

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def start_process(arguments: list[str]) -> subprocess.Popen[str]:
    """`paceline` with these arguments, from the source tree."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", "paceline.cli.main", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def live_server(model: Path, *flags: str) -> Iterator[LiveServer]:
    """Serve `model` until the block ends; the server must be ready at its start and end with exit code 0 when told to."""
    started = time.monotonic()
    process = start_process(["serve", str(model), "--port", "0", *flags])
    lines: list[str] = []
    try:
        yield LiveServer(process, _ready_address(process, lines), started, lines)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0, "".join(lines)
    finally:
        process.kill()
        process.wait()


def _ready_address(process: subprocess.Popen[str], lines: list[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if line.startswith("  open  "):
            url = line.removeprefix("  open  ").strip().rstrip("/")
            threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True).start()
            return url
    raise AssertionError(f"the server ended with {process.wait()} before it was ready:\n{''.join(lines)}")


def chunks_of(events: list[str]) -> list[dict[str, Any]]:
    """The JSON of every event but the last, which must be `[DONE]`, once."""
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1
    return [json.loads(event) for event in events[:-1]]
