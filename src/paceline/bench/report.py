"""How a benchmark's result is written: JSON for machines, a table for people, both from the same rows.

The one idea: a report is plain data (what ran, on what machine, with which settings, rows), so a committed result can be
compared with any later one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from paceline.bench.machine import MachineRecord

FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


class Report(msgspec.Struct, frozen=True):
    """One run of a benchmark."""

    benchmark: str
    machine: MachineRecord
    settings: dict[str, object]
    rows: Sequence[msgspec.Struct]


def write_report(report: Report, out: TextIO, *, as_json: bool) -> None:
    """Write a report to `out`, one JSON object or a table."""
    if as_json:
        out.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
        return
    machine = report.machine
    title = f"{report.benchmark} · {machine.cpu}, {machine.cores} cores · {machine.version} {machine.commit or ''}"
    table = Table(title=title, title_justify="left", caption=_settings_line(report.settings), caption_justify="left")
    rows = [msgspec.structs.asdict(row) for row in report.rows]
    for name in rows[0] if rows else ():
        heading = name.replace("tokens_per_s", "tok/s").replace("_per_s", "/s").replace("_", " ")
        table.add_column(heading, justify="right", no_wrap=name != "first_error")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console(file=out, highlight=False, width=None if out.isatty() else FILE_WIDTH).print(table)


def _settings_line(settings: dict[str, object]) -> str:
    return " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if value is not None)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def note(text: str) -> None:
    """Tell the person who waits what is being done; stderr, so that stdout stays data."""
    print(text, file=sys.stderr, flush=True)
