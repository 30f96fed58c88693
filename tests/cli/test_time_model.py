"""`paceline inspect --time-model`: guesses are called guesses, and what a run learned is found by the next program."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.cli.time_model import time_model_lines
from paceline.config import EngineConfig
from paceline.engine.build import build_engine
from paceline.formats.types import TensorType
from paceline.planner.time_model import TimeModel, work_of
from tests.engine.null_engine import request_of
from tests.generators.tiny_models import tiny_gguf


def test_a_model_that_never_ran_is_guessed_at() -> None:
    text = "\n".join(time_model_lines(TimeModel()))
    assert "none measured yet" in text
    assert "3.000 ms a step" in text


def test_costs_are_read_aloud() -> None:
    model = TimeModel()
    for _ in range(640):
        model.observe(work_of([(127, 1, 1)]), 0.002)
    text = "\n".join(time_model_lines(model))
    assert "640 measured" in text
    assert "2.00 ms   99 % within     2.00 ms" in text


def test_what_a_run_learned_is_found_by_the_next_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    path = tiny_gguf(tmp_path / "tiny.gguf", "llama", tensor_type=TensorType.Q8_0)
    engine = build_engine(EngineConfig(threads=2, num_blocks=32, max_model_len=128), path)
    engine.submit(request_of("r", ignore_eos=True, max_tokens=12))
    while engine.has_work():
        engine.step()
    num_steps = engine.stats().num_steps
    engine.close()
    assert main(["inspect", str(path), "--time-model", "--threads", "2"]) == 0
    assert f"steps     {num_steps} measured" in capsys.readouterr().out
    again = build_engine(EngineConfig(threads=2, num_blocks=32, max_model_len=128), path)
    assert again.time_model.num_steps == num_steps
    again.close()
