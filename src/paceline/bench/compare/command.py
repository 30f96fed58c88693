"""`paceline bench compare`: reads the flags, starts both sides of each workload, and writes the table, the JSON and the plot.

The one idea: both sides of a workload are loaded first and then measured in turns; an idle side uses no CPU. What a peer cannot run is
said and left out.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.bench.compare.child import DriverRunner, ending_on_sigterm
from paceline.bench.compare.pairing import ComparisonRow, Pair, run_pairs, summarize
from paceline.bench.compare.peers.base import SAME_FILE, Peer, PeerFile, Runner
from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.bench.compare.peers.openvino import OpenVino
from paceline.bench.compare.peers.transformers import Transformers
from paceline.bench.compare.plot import plot
from paceline.bench.compare.regime import ReadProbe, Regime
from paceline.bench.compare.servers import ServerRunner
from paceline.bench.compare.workloads import ONE_ROW, WORKLOADS, Workload, find_workloads
from paceline.bench.machine import MachineRecord, machine_record
from paceline.bench.quantiles import median
from paceline.bench.report import Report, note, write_report
from paceline.cli.model import find_model
from paceline.errors import EngineError, ModelError, NotFoundError, RequestError
from paceline.planner.machine import read_machine

PEERS: dict[str, Callable[[], Peer]] = {
    "llama.cpp": LlamaCpp.in_cache,
    "openvino": OpenVino.in_cache,
    "transformers": Transformers.in_cache,
}

NUM_BLOCKS = 1024
"""KV blocks of our side: 16,384 tokens, room for every workload."""


class ComparisonReport(msgspec.Struct, frozen=True):
    """A report with every pair, those set aside included."""

    benchmark: str
    machine: MachineRecord
    settings: dict[str, object]
    rows: Sequence[ComparisonRow]
    pairs: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared, resolved."""

    model: Path
    peer: Peer
    peer_file: str
    threads: int
    engine_flags: tuple[str, ...]
    num_pairs: int

    def our_command(self, program: Sequence[str]) -> list[str | Path]:
        """A command of ours on the model, with the settings that are the same for all of them."""
        settings = ["--threads", str(self.threads), "--num-blocks", str(NUM_BLOCKS), "--no-enable-prefix-caching"]
        return [sys.executable, "-m", *program, self.model, *settings, *self.engine_flags]

    def start_ours(self, workload: Workload) -> Runner:
        """Our side, ready. Errors: EngineError when it does not get there"""
        if workload.kind == "http":
            serve = self.our_command(["paceline.cli.main", "serve"])
            return ServerRunner(lambda port: [*serve, "--host", "127.0.0.1", "--port", str(port)], "paceline serve")
        return DriverRunner(self.our_command(["paceline.bench.compare.ours"]), "paceline")

    def file_of_peer(self, workload: Workload) -> PeerFile:
        """What the peer reads, by `--peer-file`. Errors: NotFoundError · as the peer's"""
        match self.peer_file:
            case "auto":
                return self.peer.file_for(self.model, workload)
            case "same":
                return PeerFile(self.model, SAME_FILE)
            case "q4_0":
                quantizer = LlamaCpp.in_cache()
                quantizer.install()
                return quantizer.q4_0_file(self.model)
            case name if Path(name).is_file():
                return PeerFile(Path(name), Path(name).name)
        raise NotFoundError(f"`{self.peer_file}` is no file; expected a path, `auto`, `same` or `q4_0`.", param="peer_file")

    def run(self, workload: Workload, probe: Callable[[], Regime]) -> tuple[ComparisonRow, list[Pair]]:
        """Load both sides, measure them in turns. Errors: EngineError when a side fails"""
        with ExitStack() as stack:
            note(f"{workload.name}: loading …")
            ours = stack.enter_context(closing(self.start_ours(workload)))
            if workload.kind == "verify":
                label, peer, peer_workload = "one row, ours", ours, ONE_ROW
            else:
                file = self.file_of_peer(workload)
                label, peer, peer_workload = file.label, self.peer.start(file, workload, self.threads), workload
                stack.enter_context(closing(peer))
            pairs = run_pairs(
                workload, lambda: measured(ours, workload, "ours"), lambda: measured(peer, peer_workload, "peer"), probe, self.num_pairs
            )
        return summarize(workload, pairs, label), pairs

    def can_run(self, workload: Workload) -> bool:
        """Whether there is something to compare with."""
        return workload.kind == "verify" or workload.kind in self.peer.kinds


def measured(runner: Runner, workload: Workload, side: str) -> float:
    """The figure of one measurement: the median over its runs."""
    figure = median([workload.figure(seconds) for seconds in runner.measure(workload)])
    note(f"{workload.name}: {side} {figure:,.4g} {workload.unit}")
    return figure


def add_flags(flags: argparse.ArgumentParser) -> None:
    """The flags of `paceline bench compare`, but `--json`, which every benchmark has."""
    flags.add_argument("model", metavar="MODEL", help="catalog name, path or hub id of a GGUF file")
    flags.add_argument("--peer", choices=tuple(PEERS), required=True, help="the engine to compare with; installed into the cache at first")
    flags.add_argument("--workload", default=",".join(WORKLOADS), metavar="NAME,NAME", help=f"some of {','.join(WORKLOADS)} [all]")
    flags.add_argument("--pairs", type=int, default=5, metavar="N", help="alternating pairs of each workload [5]")
    flags.add_argument("--threads", type=int, metavar="N", help="threads of both sides [the physical cores]")
    flags.add_argument(
        "--peer-file", default="auto", metavar="FILE", help="what the peer reads: same, q4_0 or a path [auto: see the guide]"
    )
    flags.add_argument("--engine-flags", default="", metavar="TEXT", help="more engine flags for our side, in one string")
    flags.add_argument("--plot", type=Path, metavar="FILE", help="write a plot as SVG")


def run_compare(options: argparse.Namespace) -> int:
    """`paceline bench compare`; 1 when a workload failed on either side. Errors: RequestError, CapacityError, EngineError"""
    if options.pairs < 1:
        raise RequestError(f"`pairs` is {options.pairs}; expected 1 or more.", param="pairs")
    wanted = find_workloads(options.workload)
    peer = PEERS[options.peer]()
    threads = options.threads or read_machine().num_cores
    flags = tuple(shlex.split(options.engine_flags))
    comparison = Comparison(find_model(options.model), peer, options.peer_file, threads, flags, options.pairs)
    workloads = [workload for workload in wanted if comparison.can_run(workload)]
    for workload in wanted:
        if workload not in workloads:
            note(f"{workload.name}: {peer.name} has no such thing; left out.")
    with ending_on_sigterm(), closing(ReadProbe(threads)) as probe:
        if any(workload.kind in peer.kinds for workload in workloads):
            peer.install()
        rows, pairs = _run_all(comparison, workloads, probe.measure)
    _write(options, comparison, rows, pairs)
    return 0 if len(rows) == len(workloads) else 1


def _run_all(comparison: Comparison, workloads: Sequence[Workload], probe: Callable[[], Regime]) -> tuple[list[ComparisonRow], list[Pair]]:
    """What every workload gives; one that fails is told and does not cost the others their figures."""
    rows: list[ComparisonRow] = []
    pairs: list[Pair] = []
    for workload in workloads:
        try:
            row, found = comparison.run(workload, probe)
        except (EngineError, ModelError) as error:
            note(f"{workload.name}: failed. {error}")
            continue
        rows.append(row)
        pairs += found
    return rows, pairs


def _write(options: argparse.Namespace, comparison: Comparison, rows: list[ComparisonRow], pairs: list[Pair]) -> None:
    peer = comparison.peer
    settings: dict[str, object] = {
        "model": comparison.model.name,
        "peer": f"{peer.name} {peer.version}",
        "threads": comparison.threads,
        "pairs": comparison.num_pairs,
        "engine_flags": options.engine_flags or None,
    }
    record = machine_record(datetime.datetime.now(datetime.UTC))
    if options.as_json:
        report = ComparisonReport("compare", record, settings, rows, pairs)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
    else:
        write_report(Report("compare", record, settings, rows), sys.stdout, as_json=False)
    if options.plot is not None:
        title = f"{comparison.model.name} · Paceline against {peer.name} {peer.version} · {comparison.threads} threads"
        options.plot.write_text(plot(title, rows, pairs), encoding="utf-8")
