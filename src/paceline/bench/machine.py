"""Where and what was measured: without this record a figure means nothing.

The one idea: two results may be compared when their records agree in all but the commit and the date.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import msgspec

import paceline
from paceline.planner.machine import cpu_name, read_machine


class MachineRecord(msgspec.Struct, frozen=True):
    """The machine, the program and the moment of a measurement."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    version: str
    commit: str | None
    """The checkout's commit, with `+` when files differ from it; None when this is no checkout."""
    date: str


def machine_record(now: datetime.datetime) -> MachineRecord:
    """The record of this machine at this moment."""
    return MachineRecord(
        cpu=cpu_name(Path("/")),
        cores=read_machine().num_cores,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        version=paceline.__version__,
        commit=commit(Path(__file__).parent),
        date=now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def commit(folder: Path) -> str | None:
    """The short commit of the checkout that holds `folder`, `+` appended when tracked files differ; None outside a checkout."""
    head = _git(folder, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
