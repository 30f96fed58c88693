"""What a peer is: a name and version, what it can run, and how a runner of it is started.

The one idea: a runner gives the seconds of a workload's runs and nothing else; rates, pairs and ratios are made in one place for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.bench.compare.workloads import Kind, Workload

SAME_FILE = "the same file"
"""The label of a peer that reads what we read."""


class Runner(Protocol):
    """Something that runs workloads on a loaded model."""

    def measure(self, workload: Workload) -> list[float]:
        """Seconds of each of the workload's runs. Errors: EngineError when it cannot."""
        ...

    def close(self) -> None:
        """End whatever it started."""
        ...


@dataclass(frozen=True, slots=True)
class PeerFile:
    """The file that a peer reads, and in a few words how its weights relate to ours."""

    path: Path
    label: str


class Peer(Protocol):
    """An engine to compare with."""

    @property
    def name(self) -> str:
        """As it is typed after `--peer`."""
        ...

    @property
    def version(self) -> str:
        """The pinned version."""
        ...

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of workload that it can run."""
        ...

    def install(self) -> None:
        """Put it into its cache folder, unless it is there. Errors: CapacityError when it cannot be had"""
        ...

    def file_for(self, model: Path, workload: Workload) -> PeerFile:
        """What it reads for a workload when nobody says otherwise."""
        ...

    def start(self, file: PeerFile, workload: Workload, threads: int) -> Runner:
        """A runner that is ready. Errors: EngineError when it does not get there"""
        ...
