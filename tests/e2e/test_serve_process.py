"""`paceline serve` as a process: how fast it starts, how it fails, how it ends, and what its death leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.contract.live_server import LiveServer, command, environment, live_server
from tests.generators.tiny_models import tiny_gguf

FIRST_TOKEN_S = 1.5
MAX_STARTS = 3
SPIN = "import time\nw = time.perf_counter()\nwhile time.process_time() < 0.3: pass\nprint((time.perf_counter() - w) / time.process_time())"
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 4}
ENDLESS = {"prompt": "a", "max_tokens": 1900, "ignore_eos": True, "stream": True}
BANNED = ("torch", "pydantic", "transformers", "fastapi", "openai", "gguf")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")


def child_of(server: LiveServer) -> int:
    """The engine's process."""
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    (child,) = map(int, path.read_text().split())
    return child


def cpu_s(process_id: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busyness() -> float:
    """How much longer than its CPU time work takes here when, like a server that starts, it is two processes: 1 on a quiet machine."""
    spins = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return max(1.0, *(float(spin.communicate()[0]) for spin in spins))


def run_serve(*arguments: str) -> tuple[int, str]:
    """The exit code and stderr of a `paceline serve` that does not come up."""
    ended = subprocess.run(command("serve", *arguments), env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def wait_until_gone(process_id: int) -> None:
    deadline, pause = time.monotonic() + 10, threading.Event()
    while Path(f"/proc/{process_id}").exists() and Path(f"/proc/{process_id}/stat").read_text().split(")")[1].split()[0] != "Z":
        assert time.monotonic() < deadline
        pause.wait(0.01)


def test_the_first_token_comes_within_the_promise_of_the_start(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waits: list[float] = []
    while len(waits) < MAX_STARTS and min(waits, default=FIRST_TOKEN_S + 1) > FIRST_TOKEN_S:
        with live_server(smollm2_path) as server:
            moment, _ = next(server.timed_stream("/v1/chat/completions", BODY))
            waits.append(moment - server.started)
    with capsys.disabled():
        print(f" [first token after {', '.join(f'{wait:.2f}' for wait in waits)} s] ", end="")
    assert min(waits) <= FIRST_TOKEN_S * busyness()


def test_neither_process_imports_anything_heavy(tiny: Path) -> None:
    with live_server(tiny, PYTHONPROFILEIMPORTTIME="1") as server:
        assert server.post("/v1/chat/completions", BODY).status_code == 200
        assert server.get("/metrics").status_code == 200
    imported = {line.rsplit("|", 1)[1].strip() for line in server.lines if line.startswith("import time:")}
    assert {"paceline.engine.loop", "paceline.backends.native.backend", "paceline.serve.app", "uvicorn"} <= imported
    assert [name for name in imported if name.split(".")[0] in BANNED] == []


def test_an_idle_server_uses_no_cpu(tiny: Path) -> None:
    with live_server(tiny) as server:
        server.post("/v1/chat/completions", BODY)
        processes = (server.process.pid, child_of(server))
        before = [cpu_s(process_id) for process_id in processes]
        threading.Event().wait(1.0)
        used = [cpu_s(process_id) - start for process_id, start in zip(processes, before, strict=True)]
    assert used[0] <= 0.03, "the front wakes ten times a second"
    assert used[1] == 0, "the engine sleeps"


def test_a_broken_model_file_is_one_clear_error(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny.read_bytes()[:5000])
    code, errors = run_serve(str(broken), "--port", "0")
    assert code == 1
    assert "broken.gguf" in errors
    assert len(errors.splitlines()) <= 2


def test_an_unknown_model_is_one_clear_error_with_a_hint() -> None:
    code, errors = run_serve("nosuch:model")
    assert code == 2
    assert "`nosuch:model`" in errors
    assert "smollm2:135m" in errors


def test_a_port_that_is_taken_is_said(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = run_serve(str(tiny), "--port", str(port))
    assert code == 2
    assert f"127.0.0.1:{port}" in errors


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--tensor-parallel-size", "2"], "--tensor-parallel-size 2"),
        (["--quantization", "awq"], "--quantization awq"),
        (["--target", "abacus"], "abacus"),
        (["--chat-template", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_flag_that_cannot_be_honoured_is_named(tiny: Path, flags: list[str], word: str) -> None:
    code, errors = run_serve(str(tiny), "--port", "0", *flags)
    assert code == 2
    assert word in errors


def test_the_command_that_vllm_users_type_starts(tiny: Path) -> None:
    flags = (
        "--dtype",
        "float16",
        "--max-model-len",
        "512",
        "--gpu-memory-utilization",
        "0.5",
        "--max-num-seqs",
        "8",
        "--trust-remote-code",
    )
    with live_server(tiny, *flags, "--tensor-parallel-size", "1", "--served-model-name", "mine", "yours") as server:
        (model,) = server.get("/v1/models").json()["data"]
        assert (model["id"], model["max_model_len"]) == ("mine", 512)
        assert server.post("/v1/completions", {"model": "yours", "prompt": "a", "max_tokens": 1}).status_code == 200
        notes = [line for line in server.lines if "serve.note" in line]
        assert len(notes) == 3


def test_an_open_stream_finishes_after_sigterm_and_the_exit_is_0(tiny: Path) -> None:
    with live_server(tiny, "--backend", "hash") as server, httpx.stream("POST", server.url + "/v1/completions", json=ENDLESS) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert server.process.wait(timeout=30) == 0


def test_at_the_drain_limit_open_streams_are_ended_honestly(tiny: Path) -> None:
    slow = {"messages": [{"role": "user", "content": "a" * 1500}], "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 64}
    with live_server(tiny, "--backend", "reference", "--drain-timeout-s", "0") as server:
        with httpx.stream("POST", server.url + "/v1/chat/completions", json=slow, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        reasons = [
            choice["finish_reason"] for line in rest if line.startswith("data: {") for choice in json.loads(line[6:]).get("choices", [])
        ]
        assert reasons.count("abort") == 64 or "error" in json.loads(rest[-1][6:])
        assert server.process.wait(timeout=30) == 0


def test_a_second_signal_ends_at_once(tiny: Path) -> None:
    with live_server(tiny, "--backend", "reference") as server:
        engine = child_of(server)
        with httpx.stream("POST", server.url + "/v1/completions", json=ENDLESS | {"n": 64}, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            while server.get("/health").json()["status"] != "draining":
                pass
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(timeout=5) == 128 + signal.SIGINT
        wait_until_gone(engine)


def test_the_engines_death_is_said_and_the_front_still_answers(tiny: Path) -> None:
    with live_server(tiny, "--backend", "reference") as server:
        with httpx.stream("POST", server.url + "/v1/completions", json=ENDLESS | {"n": 32}, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            os.kill(child_of(server), signal.SIGKILL)
            rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "engine_error"
        health = server.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "dead")
        refused = server.post("/v1/completions", {"prompt": "a"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "server_error")
        assert server.get("/metrics").status_code == 200


def test_the_engine_does_not_outlive_a_killed_front(tiny: Path) -> None:
    with live_server(tiny) as server:
        engine = child_of(server)
        server.process.kill()
        server.process.wait()
        wait_until_gone(engine)
