"""Processes that a comparison starts: a program that ends by itself, a driver that is asked over pipes, a server that gets ready.

The one idea: everything started here has a time limit and no thread settings from the environment, its last words are kept for the
error, and it is ended by its own process group and no other. What a driver is asked and answers is one JSON object a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from paceline import env
from paceline.bench.compare.workloads import Workload
from paceline.errors import EngineError

MEASURE_TIMEOUT_S = 900.0
"""The longest that one measurement, or a runner's start, may take."""
END_TIMEOUT_S = 10.0
SHOWN_CHARACTERS = 2000
THREAD_SETTINGS = ("OMP_", "GOMP_", "KMP_", "MKL_")
"""Variables that would change how one side's threads run; no child inherits them."""


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver answers: once when it is ready, then to each workload with the seconds of each run."""

    seconds: list[float] = []
    error: str | None = None


def run_program(command: Sequence[str | Path], timeout_s: float = MEASURE_TIMEOUT_S) -> str:
    """The stdout of a program that ends by itself. Errors: EngineError with its last words when it fails or takes too long."""
    with Child(command, timeout_s=timeout_s, name=Path(command[0]).name) as child:
        return child.read_to_end()


class Child:
    """A process of its own group that never outlives the `with` block, nor `timeout_s` since `extend` was last called."""

    def __init__(self, command: Sequence[str | Path], *, name: str, timeout_s: float = MEASURE_TIMEOUT_S) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        settings = {key: value for key, value in env.child_environment().items() if not key.startswith(THREAD_SETTINGS)}
        try:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=settings,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise EngineError(f"`{name}` cannot be started ({error.strerror}): {command[0]}") from None
        self._is_late = False
        self._alarm: threading.Timer | None = None
        self.extend(timeout_s)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def extend(self, timeout_s: float) -> None:
        """Give it this long from now on."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = threading.Timer(timeout_s, self._give_up)
        self._alarm.daemon = True
        self._alarm.start()

    def lines(self) -> Iterator[bytes]:
        """The lines of its stdout until it ends. Errors: as `read_to_end`."""
        assert self._process.stdout is not None
        yield from self._process.stdout
        self._check_end()

    def read_to_end(self) -> str:
        """All of its stdout. Errors: EngineError with its last words when it failed or took too long."""
        assert self._process.stdout is not None
        content = self._process.stdout.read()
        self._check_end()
        return content.decode(errors="replace")

    def ask(self, request: bytes | None) -> bytes:
        """The next line of its stdout, after `request` where there is one. Errors: EngineError when it ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if request is not None:
                self._process.stdin.write(request + b"\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise self.failure("ended without an answer")
        return line

    def drain(self) -> None:
        """Throw away whatever it writes to stdout from now on, so that the pipe never fills."""
        assert self._process.stdout is not None
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def failure(self, what: str) -> EngineError:
        """The error to raise, with what it wrote last."""
        what = "took too long and was stopped" if self._is_late else what
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()[-SHOWN_CHARACTERS:]
        return EngineError(f"`{self.name}` {what}." + (f"\nIts last words:\n{words}" if words else ""))

    def close(self) -> None:
        """End it: its input first, then a signal to its group, then a harder one."""
        if self._alarm is not None:
            self._alarm.cancel()
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            try:
                self._process.wait(END_TIMEOUT_S)
                break
            except subprocess.TimeoutExpired:
                continue
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._errors.close()

    def _check_end(self) -> None:
        if self._process.wait() != 0 or self._is_late:
            raise self.failure(f"failed with status {self._process.returncode}")

    def _give_up(self) -> None:
        self._is_late = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


class DriverRunner:
    """A runner that loads once and then measures whatever workload it is sent."""

    def __init__(self, command: Sequence[str | Path], name: str) -> None:
        self._child = Child(command, name=name)
        try:
            self._decode(self._child.ask(None))
        except EngineError:
            self._child.close()
            raise

    def measure(self, workload: Workload) -> list[float]:
        """Seconds of each of the workload's runs. Errors: EngineError when the driver cannot."""
        self._child.extend(MEASURE_TIMEOUT_S)
        seconds = self._decode(self._child.ask(msgspec.json.encode(workload))).seconds
        if len(seconds) != workload.repeat or min(seconds) <= 0.0:
            raise EngineError(f"`{self._child.name}` answered {seconds}; expected {workload.repeat} times above 0.")
        return seconds

    def close(self) -> None:
        """End the driver."""
        self._child.close()

    def _decode(self, line: bytes) -> Reply:
        try:
            reply = msgspec.json.decode(line, type=Reply)
        except msgspec.MsgspecError:
            raise EngineError(f"`{self._child.name}` answered {line!r}; expected a JSON object.") from None
        if reply.error is not None:
            raise EngineError(f"`{self._child.name}` cannot: {reply.error}")
        return reply


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Within the block a SIGTERM ends this process by SystemExit, so that every `with` around a child still closes it."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def closing_on_error(child: Child) -> Iterator[Child]:
    """A child that stays when the block ends well and is closed when it does not."""
    try:
        yield child
    except BaseException:
        child.close()
        raise
