"""The command measures both sides of each workload it can and writes rows, pairs and plot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.bench.cli import main
from paceline.bench.compare import command
from paceline.bench.compare.command import Comparison, measured
from paceline.bench.compare.peers.base import PeerFile, Runner
from paceline.bench.compare.regime import Regime
from paceline.bench.compare.workloads import ONE_ROW, WORKLOADS, Kind, Workload
from paceline.errors import EngineError, NotFoundError, RequestError
from tests.generators.tiny_models import tiny_gguf


@dataclass(frozen=True)
class FixedRunner:
    """A side that always takes so long for a token."""

    token_s: float

    def measure(self, workload: Workload) -> list[float]:
        return [self.token_s * workload.num_tokens] * workload.repeat

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SlowPeer:
    """A peer that takes 10 ms a token and knows no server."""

    log: list[str]
    name: str = "slow"
    version: str = "1"
    kinds: frozenset[Kind] = frozenset({"decode", "prefill"})

    def install(self) -> None:
        self.log.append("install")

    def file_for(self, model: Path, workload: Workload) -> PeerFile:
        return PeerFile(model, "the same file")

    def start(self, file: PeerFile, workload: Workload, threads: int) -> Runner:
        self.log.append(f"{workload.name} {file.path.name} {threads}")
        return FixedRunner(0.01)


class SteadyProbe:
    """A machine that never changes."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def measure(self) -> Regime:
        return Regime(50.0)

    def close(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the peer was told, with a peer and sides that compute nothing."""
    told: list[str] = []
    monkeypatch.setitem(command.PEERS, "llama.cpp", lambda: SlowPeer(told))
    monkeypatch.setattr(command, "ReadProbe", SteadyProbe)
    monkeypatch.setattr(Comparison, "start_ours", lambda self, workload: FixedRunner(0.002))
    return told


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(tiny_gguf(tmp_path / "tiny.gguf", "llama"))


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["compare", *arguments, "--peer", "llama.cpp", "--threads", "2", "--json"]) == 0
    written: dict[str, Any] = json.loads(capsys.readouterr().out)
    return written


def test_report_has_a_row_per_workload_and_every_pair(capsys: pytest.CaptureFixture[str], log: list[str], model: str) -> None:
    written = report(capsys, model, "--workload", "decode1,prefill512", "--pairs", "3")
    assert [row["workload"] for row in written["rows"]] == ["decode1", "prefill512"]
    assert [pair["workload"] for pair in written["pairs"]] == ["decode1"] * 3 + ["prefill512"] * 3
    assert all(row["ratio"] == pytest.approx(5.0) and row["peer"] == pytest.approx(100.0) for row in written["rows"])
    assert written["settings"]["peer"] == "slow 1"
    assert log == ["install", "decode1 tiny.gguf 2", "prefill512 tiny.gguf 2"]


def test_workload_that_the_peer_cannot_run_is_said_and_left_out(capsys: pytest.CaptureFixture[str], log: list[str], model: str) -> None:
    assert main(["compare", model, "--peer", "llama.cpp", "--workload", "http,decode1", "--pairs", "1"]) == 0
    captured = capsys.readouterr()
    assert "http: slow has no such thing" in captured.err
    assert "decode1" in captured.out
    assert "http" not in captured.out


def test_verify_compares_us_with_ourselves_and_installs_no_peer(
    capsys: pytest.CaptureFixture[str], log: list[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Comparison, "start_ours", lambda self, workload: FixedRunner(0.001))
    (row,) = report(capsys, model, "--workload", "verify5", "--pairs", "1")["rows"]
    assert row["ratio"] == pytest.approx(5.0)  # a side whose time goes with the rows
    assert row["unit"] == "ms/step"
    assert log == []


def test_workload_that_fails_costs_no_other_its_row(
    capsys: pytest.CaptureFixture[str], log: list[str], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Comparison, workload: Workload) -> Runner:
        if workload.name == "decode1":
            raise EngineError("no memory")
        return FixedRunner(0.002)

    monkeypatch.setattr(Comparison, "start_ours", start)
    assert main(["compare", model, "--peer", "llama.cpp", "--workload", "decode1,prefill512", "--pairs", "1", "--json"]) == 1
    captured = capsys.readouterr()
    assert "decode1: failed. no memory" in captured.err
    assert [row["workload"] for row in json.loads(captured.out)["rows"]] == ["prefill512"]


def test_plot_is_written_where_asked(capsys: pytest.CaptureFixture[str], log: list[str], model: str, tmp_path: Path) -> None:
    report(capsys, model, "--workload", "decode1", "--pairs", "1", "--plot", str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


def test_peer_reads_the_file_it_is_told_to(capsys: pytest.CaptureFixture[str], log: list[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "other.gguf").touch()
    (row,) = report(capsys, model, "--workload", "decode1", "--pairs", "1", "--peer-file", str(tmp_path / "other.gguf"))["rows"]
    assert row["peer_file"] == "other.gguf"
    assert log[1] == "decode1 other.gguf 2"
    with pytest.raises(NotFoundError, match="`auto`, `same` or `q4_0`"):
        report(capsys, model, "--workload", "decode1", "--peer-file", "nowhere.gguf")


def test_numbers_that_make_no_sense_are_refused(log: list[str], model: str) -> None:
    with pytest.raises(RequestError, match="pairs"):
        main(["compare", model, "--peer", "llama.cpp", "--pairs", "0"])
    with pytest.raises(RequestError, match="workload"):
        main(["compare", model, "--peer", "llama.cpp", "--workload", "prefill"])


def test_both_of_our_programs_get_the_same_settings(tmp_path: Path) -> None:
    comparison = Comparison(tmp_path, SlowPeer([]), "auto", 2, ("--max-num-seqs", "16"), 1)
    serve, driver = (comparison.our_command([program])[3:] for program in ("serve", "driver"))
    assert serve == driver
    assert "--no-enable-prefix-caching" in serve
    assert serve[-2:] == ["--max-num-seqs", "16"]


def test_figure_of_a_measurement_is_the_median_of_its_runs() -> None:
    class Uneven(FixedRunner):
        def measure(self, workload: Workload) -> list[float]:
            return [0.64, 64.0, 0.64]

    assert measured(Uneven(0.0), WORKLOADS["decode1"], "ours") == pytest.approx(100.0)
    assert measured(Uneven(0.0), ONE_ROW, "peer") == pytest.approx(10.0)
