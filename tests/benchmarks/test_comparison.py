"""Promises are judged by the model, by the memory's regime and by the workload's direction."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import comparison
from benchmarks.comparison import MODELS, PROMISES, SLOW_BELOW_GB_PER_S, Outcome, Promise, line_of, main, outcome
from paceline.bench.compare.command import PEERS
from paceline.bench.compare.workloads import WORKLOADS


def row(workload: str, ratio: float, *, read_gb_per_s: float = 60.0) -> dict[str, Any]:
    return {"workload": workload, "ratio": ratio, "read_gb_per_s": read_gb_per_s, "peer_file": "the same file"}


def test_every_promise_names_a_workload_and_a_peer_that_exist() -> None:
    assert {promise.workload for promise in PROMISES} == set(WORKLOADS)
    assert {promise.peer for promise in PROMISES} <= set(PEERS)
    assert all(len(promise.ratios) in (1, len(MODELS)) for promise in PROMISES)


def test_slow_memory_has_its_own_promise_only_where_there_is_one() -> None:
    promise = Promise("llama.cpp", "decode1", (3.0, 2.0), slow=(2.5, 1.5))
    assert promise.ratio(1, SLOW_BELOW_GB_PER_S + 1) == 2.0
    assert promise.ratio(1, SLOW_BELOW_GB_PER_S - 1) == 1.5
    assert Promise("llama.cpp", "decode16", (3.0, 2.0)).ratio(1, SLOW_BELOW_GB_PER_S - 1) == 2.0


@pytest.mark.parametrize(("ratio", "kept"), [(2.0, True), (1.91, True), (1.89, False)])
def test_rate_may_miss_its_promise_by_a_twentieth(ratio: float, kept: bool) -> None:
    assert outcome("m", "llama.cpp", 2.0, row("decode1", ratio)).is_kept is kept


@pytest.mark.parametrize(("ratio", "kept"), [(1.0, True), (2.09, True), (2.11, False)])
def test_time_must_stay_below_its_promise(ratio: float, kept: bool) -> None:
    assert outcome("m", "llama.cpp", 2.0, row("verify5", ratio)).is_kept is kept


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ratio: float) -> tuple[int, dict[str, Any]]:
    def compare(model: Path, peer: str, peer_file: str, workloads: list[str], options: argparse.Namespace) -> dict[str, Any]:
        rows = [row(name, 1.0 if name == "verify5" else ratio) for name in workloads]
        return {"rows": rows, "pairs": [{"workload": name} for name in workloads]}

    monkeypatch.setattr(comparison, "compare", compare)
    monkeypatch.setattr(comparison, "proof_model", Path)
    code = main(["smollm2-135m", "qwen2.5-coder-1.5b"])
    return code, json.loads(capsys.readouterr().out)


def test_every_promise_of_the_named_models_has_a_row_and_pairs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, written = run(monkeypatch, capsys, ratio=8.0)
    assert code == 0
    assert len(written["rows"]) == len(written["pairs"]) == len(PROMISES) + sum(len(promise.ratios) > 1 for promise in PROMISES)
    assert {found["model"] for found in written["rows"]} == {"smollm2-135m", "qwen2.5-coder-1.5b"}


def test_one_broken_promise_fails_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, written = run(monkeypatch, capsys, ratio=7.0)  # below 8.0 for one model's decode16 and prefill512
    assert code == 1
    broken = [(found["model"], found["measured"]["workload"]) for found in written["rows"] if not found["is_kept"]]
    assert broken == [("smollm2-135m", "decode16"), ("smollm2-135m", "prefill512")]


def test_workload_without_a_row_breaks_its_promise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(comparison, "compare", lambda *_: {"rows": [], "pairs": []})
    monkeypatch.setattr(comparison, "proof_model", Path)
    assert main(["qwen2.5-coder-0.5b"]) == 1
    captured = capsys.readouterr()
    assert not any(found["is_kept"] for found in json.loads(captured.out)["rows"])
    assert "decode1 / llama.cpp: FAILED" in captured.err


def test_broken_promise_is_told_as_such() -> None:
    found = Outcome("m", "llama.cpp", 3.0, False, row("decode1", 2.0))
    assert line_of(found) == "m decode1 / llama.cpp (the same file): 2.00, at least 3.0: BROKEN"
