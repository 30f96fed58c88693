"""The committed cases are well formed, and a result says what a reader needs to repeat it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.run import FOLDER, Case, load_cases, main, run_case


def test_committed_cases_belong_to_a_suite_and_run_our_programs() -> None:
    cases = load_cases(FOLDER / "cases")
    assert {case.suite for case in cases} == {"bench", "prove", "peers", "traces"}
    assert {case.command[0] for case in cases} <= {"paceline", "python"}
    for case in cases:
        assert ("{url}" in case.command) == (case.serves is not None)


def test_modules_that_cases_run_exist() -> None:
    for case in load_cases(FOLDER / "cases"):
        if case.command[0] == "python":
            assert (FOLDER.parent / (case.command[2].replace(".", "/") + ".py")).exists(), case.name


@pytest.mark.parametrize(("code", "kept"), [(0, True), (1, False)])
def test_result_holds_command_machine_and_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kept: bool) -> None:
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    script = f'import sys; print(\'{{"figure": 7, "machine": 1}}\'); sys.exit({code})'
    assert run_case(Case("try", "prove", "a try", ("python", "-c", script))) is kept
    result = json.loads((tmp_path / "results" / "try.json").read_text())
    assert (result["passed"], result["output"]) == (kept, {"figure": 7})
    assert result["machine"]["cpu"]
    assert result["command"].startswith("python -c")


def test_unknown_case_is_refused() -> None:
    assert main(["prove", "nothing-of-that-name"]) == 2
    assert main(["no-such-suite"]) == 2
