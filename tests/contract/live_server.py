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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

ROOT = Path(__file__).parents[2]


@dataclass
class LiveServer:
    """A running server: where it is, and what it has written to stderr."""

    process: subprocess.Popen[str]
    url: str
    started: float
    """`time.monotonic()` just before the process was started."""
    lines: list[str]
    http: httpx.Client

    def get(self, path: str) -> httpx.Response:
        """A GET."""
        return self.http.get(path)

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        """A POST of JSON."""
        return self.http.post(path, json=body, **options)

    def stream(self, path: str, body: dict[str, Any]) -> list[str]:
        """The data of each event of a streamed answer."""
        return [data for _, data in self.timed_stream(path, body)]

    def timed_stream(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, str]]:
        """The data of each event of a streamed answer with the moment it came."""
        with self.http.stream("POST", path, json=body | {"stream": True}) as answer:
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


def environment(**more: str) -> dict[str, str]:
    """This environment, with the package from the source tree."""
    return os.environ | {"PYTHONPATH": str(ROOT / "src")} | more


def command(*arguments: str) -> list[str]:
    """The words that run `paceline`."""
    return [sys.executable, "-m", "paceline.cli.main", *arguments]


@contextmanager
def live_server(model: Path | str, *flags: str, **more: str) -> Iterator[LiveServer]:
    """Serve `model` until the block ends, with `more` in its environment; it must be ready at the start and exit with 0 when told to."""
    started = time.monotonic()
    words = command("serve", str(model), "--port", "0", *flags)
    process = subprocess.Popen(words, env=environment(**more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stderr is not None
    with process.stderr as stderr:
        try:
            url = _ready_address(process, stderr, lines)
            reader = threading.Thread(target=lines.extend, args=(stderr,))
            reader.start()
            with httpx.Client(base_url=url, timeout=60, limits=httpx.Limits(max_keepalive_connections=4)) as http:
                yield LiveServer(process, url, started, lines, http)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=30) == 0, "".join(lines)
            reader.join(10)
        finally:
            process.kill()
            process.wait()


def _ready_address(process: subprocess.Popen[str], stderr: IO[str], lines: list[str]) -> str:
    for line in stderr:
        lines.append(line)
        if line.startswith("  open  "):
            return line.removeprefix("  open  ").strip().rstrip("/")
    raise AssertionError(f"the server ended with {process.wait()} before it was ready:\n{''.join(lines)}")


def chunks_of(events: list[str]) -> list[dict[str, Any]]:
    """The JSON of every event but the last, which must be `[DONE]`, once."""
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1
    return [json.loads(event) for event in events[:-1]]
