"""What a comparison starts is bounded in time, ends with its block, and its last words reach the reader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.bench.compare.child import Child, DriverRunner, run_program
from paceline.bench.compare.workloads import ONE_ROW, WORKLOADS
from paceline.errors import EngineError

ECHO = """
import json, sys
print("{}", flush=True)
for line in sys.stdin:
    workload = json.loads(line)
    print(json.dumps(REPLY), flush=True)
"""


def driver(reply: str) -> DriverRunner:
    return DriverRunner([sys.executable, "-c", ECHO.replace("REPLY", reply)], "the driver")


def test_programs_output_is_given() -> None:
    assert run_program([sys.executable, "-c", "print('7 tokens')"]) == "7 tokens\n"


def test_thread_settings_of_the_environment_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OTHER_SETTING", "kept")
    script = "import os; print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('OTHER_SETTING'))"
    assert run_program([sys.executable, "-c", script]) == "None kept\n"


def test_failed_programs_last_words_are_in_the_error() -> None:
    with pytest.raises(EngineError, match=r"status 3(?s:.)*no such model"):
        run_program([sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(3)"])


def test_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"`no-bench` cannot be started.*/no-bench"):
        run_program([tmp_path / "no-bench"])


def test_program_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(EngineError, match="took too long"):
        run_program([sys.executable, "-c", "import threading; threading.Event().wait()"], timeout_s=0.2)


def test_child_is_gone_after_its_block_even_when_it_ignores_a_polite_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.bench.compare.child.END_TIMEOUT_S", 0.2)
    deaf = "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); threading.Event().wait()"
    with Child([sys.executable, "-c", deaf], name="deaf") as child:
        assert child.ask(None) == b"1\n"
        assert not child.has_ended()
    assert child.has_ended()


def test_child_does_not_outlive_a_comparison_that_is_terminated() -> None:
    script = f"""
from paceline.bench.compare.child import Child, ending_on_sigterm
command = [{sys.executable!r}, "-c", "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"]
with ending_on_sigterm(), Child(command, name="waiting") as child:
    print(child.ask(None).decode().strip(), flush=True)
    child.ask(None)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        child_id = int(process.stdout.readline())
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child_id, 0)


def test_driver_answers_a_workload_with_its_seconds() -> None:
    runner = driver('{"seconds": [0.5] * workload["repeat"]}')
    assert runner.measure(WORKLOADS["decode1"]) == [0.5, 0.5, 0.5]
    assert runner.measure(WORKLOADS["chats16"]) == [0.5]
    runner.close()


@pytest.mark.parametrize("reply", ['{"seconds": [0.5]}', '{"seconds": [0.0, 1.0, 1.0]}', '"hello"', '{"error": "no room"}'])
def test_driver_with_another_answer_is_refused(reply: str) -> None:
    runner = driver(reply)
    with pytest.raises(EngineError, match="the driver"):
        runner.measure(ONE_ROW)
    runner.close()


def test_driver_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="FileNotFoundError"):
        DriverRunner([sys.executable, "-c", f"open({str(tmp_path / 'missing')!r})"], "the driver")
