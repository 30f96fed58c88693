"""The whole comparison: three models, llama.cpp and OpenVINO, every workload, and the ratio that each must reach.

    python -m benchmarks.comparison [MODEL …] [--pairs N] [--threads N] [--plots FOLDER]

The one idea: a promise is a row of `PROMISES`, a ratio per model; this runs `paceline bench compare` for what the rows need and sets
the measured ratios beside them. A ratio that depends on memory has a second, lower promise for a machine whose memory is in its slow
regime while the pair is measured (see docs/guides/compare.md).

Prints one JSON object; exits with 1 when a ratio misses its promise by more than `ALLOWED_MISS`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.models import proof_model
from paceline.planner.machine import read_machine

MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
ALLOWED_MISS = 0.05
SLOW_BELOW_GB_PER_S = 48.0
"""Read bandwidth, by the comparison's own probe on two threads, below which memory is in its slow regime."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The ratio of a workload to a peer, per model in the order of `MODELS`; `slow` holds in the slow regime, where it differs."""

    peer: str
    workload: str
    ratios: tuple[float, ...]
    slow: tuple[float, ...] | None = None
    peer_file: str = "auto"

    def ratio(self, model_index: int, read_gb_per_s: float) -> float:
        """What must be reached on a model with memory that fast."""
        return (self.slow if self.slow and read_gb_per_s < SLOW_BELOW_GB_PER_S else self.ratios)[model_index]


PROMISES = (
    Promise("llama.cpp", "decode1", (3.2, 2.2, 1.4), slow=(2.2, 1.5, 1.0)),
    Promise("llama.cpp", "decode16", (8.0, 5.5, 3.0)),
    Promise("llama.cpp", "prefill512", (8.0, 4.0, 2.3)),
    Promise("llama.cpp", "http", (2.8, 2.8, 2.0)),
    Promise("llama.cpp", "decode1", (2.4,), slow=(1.8,), peer_file="q4_0"),
    Promise("llama.cpp", "decode16", (3.0,), peer_file="q4_0"),
    Promise("openvino", "prefill512", (1.4, 1.15, 1.15)),
    Promise("openvino", "chats16", (2.0, 1.7, 1.5)),
    Promise("llama.cpp", "verify5", (1.45, 1.25, 1.2)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A promise on a model, and what was measured; `verify5` is a time and must stay below its promise, every other ratio above."""

    model: str
    peer: str
    promised: float
    is_kept: bool
    measured: dict[str, Any]


def run_model(name: str, options: argparse.Namespace) -> Iterator[tuple[list[Outcome], list[dict[str, Any]]]]:
    """The outcomes of one model, a call of the command at a time, with the pairs behind them."""
    model_index = MODELS.index(name)
    promised = [promise for promise in PROMISES if model_index < len(promise.ratios)]
    for peer, peer_file in dict.fromkeys((promise.peer, promise.peer_file) for promise in promised):
        rows = {promise.workload: promise for promise in promised if (promise.peer, promise.peer_file) == (peer, peer_file)}
        report = compare(proof_model(name), peer, peer_file, list(rows), options)
        measured = {row["workload"]: row for row in report["rows"]}
        found = [measured.get(workload, {"workload": workload, "read_gb_per_s": 0.0}) for workload in rows]
        outcomes = [outcome(name, peer, rows[row["workload"]].ratio(model_index, row["read_gb_per_s"]), row) for row in found]
        yield outcomes, [{"model": name, "against": peer, "peer_file": peer_file, **pair} for pair in report["pairs"]]


def outcome(model: str, peer: str, promised: float, row: dict[str, Any]) -> Outcome:
    """Whether a row keeps its promise, within the allowed miss; one without a ratio does not."""
    if "ratio" not in row:
        return Outcome(model, peer, promised, False, row)
    is_time = row["workload"] == "verify5"
    kept = row["ratio"] <= promised * (1 + ALLOWED_MISS) if is_time else row["ratio"] >= promised * (1 - ALLOWED_MISS)
    return Outcome(model, peer, promised, kept, row)


def compare(model: Path, peer: str, peer_file: str, workloads: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """What `paceline bench compare` says; a workload that failed has no row in it."""
    command = [sys.executable, "-m", "paceline.cli.main", "bench", "compare", str(model), "--peer", peer, "--peer-file", peer_file]
    command += ["--workload", ",".join(workloads), "--pairs", str(options.pairs), "--threads", str(options.threads), "--json"]
    if options.plots is not None:
        options.plots.mkdir(parents=True, exist_ok=True)
        command += ["--plot", str(options.plots / f"{model.stem}-{peer}-{peer_file}.svg")]
    report: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout or "{}")
    return {"rows": [], "pairs": []} | report


def main(arguments: Sequence[str]) -> int:
    """Run the comparison of the named models, or of all; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description="Every promised ratio, measured.")
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], default=[], metavar="MODEL", help=f"some of {', '.join(MODELS)} [all]")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=read_machine().num_cores)
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write a plot for each call of the command")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    pairs: list[dict[str, Any]] = []
    started = time.monotonic()
    for name in options.models or MODELS:
        for some_outcomes, some_pairs in run_model(name, options):
            outcomes += some_outcomes
            pairs += some_pairs
            for found in some_outcomes:
                print(line_of(found), file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - started, 1)
    print(
        json.dumps({"benchmark": "comparison", "seconds": seconds, "rows": [asdict(found) for found in outcomes], "pairs": pairs}, indent=2)
    )
    return 0 if all(found.is_kept for found in outcomes) else 1


def line_of(found: Outcome) -> str:
    """An outcome for a person who waits."""
    row = found.measured
    if "ratio" not in row:
        return f"{found.model} {row['workload']} / {found.peer}: FAILED"
    sign = "at most" if row["workload"] == "verify5" else "at least"
    verdict = "kept" if found.is_kept else "BROKEN"
    return f"{found.model} {row['workload']} / {found.peer} ({row['peer_file']}): {row['ratio']:.2f}, {sign} {found.promised}: {verdict}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
