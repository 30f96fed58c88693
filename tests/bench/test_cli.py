"""`paceline bench` writes one JSON object to stdout, with a row per setting and the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.cli import main
from paceline.errors import NotFoundError
from tests.e2e.rehearsal import Answer, rehearsal
from tests.generators.tiny_models import tiny_gguf


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny_gguf(tmp_path / "tiny.gguf", "llama"))


def report(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    written: dict[str, Any] = json.loads(capsys.readouterr().out)
    return written


def test_engine_report_has_a_row_per_batch(capsys: pytest.CaptureFixture[str], model: str) -> None:
    sizes = ["--prompt-tokens", "20", "--gen-tokens", "4", "--batch", "1,3", "--repeat", "1", "--backend", "null"]
    written = report(capsys, ["engine", model, *sizes])
    assert written["benchmark"] == "engine"
    assert written["machine"]["cpu"]
    assert [row["batch"] for row in written["rows"]] == [1, 3]
    assert all(row["prefill_tokens_per_s"] > 0 and row["decode_tokens_per_s"] > 0 for row in written["rows"])


def test_perplexity_of_a_random_model_is_near_its_vocabulary(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox " * 10)
    written = report(capsys, ["perplexity", model, str(tmp_path / "text.txt"), "--window", "64", "--backend", "reference"])
    (row,) = written["rows"]
    assert row["windows"] >= 2
    assert row["mean_nll"] > 2.0  # guessing evenly costs ln V; a random model cannot know better by much


def test_serve_report_has_a_row_per_concurrency(capsys: pytest.CaptureFixture[str]) -> None:
    with rehearsal() as stage:
        stage.answers += [Answer(["a", "b"]) for _ in range(6)]
        written = report(capsys, ["serve", stage.url, "--concurrency", "1,2", "--requests", "2", "--gen-tokens", "2"])
    assert [(row["concurrency"], row["output_tokens"]) for row in written["rows"]] == [(1, 4), (2, 4)]


def test_load_of_which_nothing_goes_through_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with rehearsal() as stage:
        stage.answers += [Answer(["a"]), Answer(["a"]), Answer(status=500, message="broken")]
        assert main(["serve", stage.url, "--concurrency", "1", "--requests", "1"]) == 1


def test_table_is_written_without_json(capsys: pytest.CaptureFixture[str], model: str) -> None:
    sizes = ["--prompt-tokens", "20", "--gen-tokens", "4", "--batch", "2", "--repeat", "1", "--backend", "null"]
    assert main(["engine", model, *sizes]) == 0
    assert "decode tok/s" in " ".join(capsys.readouterr().out.split())


def test_missing_text_is_named(model: str) -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.txt"):
        main(["perplexity", model, "nowhere.txt"])
