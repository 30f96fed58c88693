"""`paceline pull MODEL`: downloads a model into the cache, with a bar; goes on where it stopped before.

The one idea: the bar lives here and `formats.pull` only calls back, so that nothing below the command line draws.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.formats.catalog import DEFAULT_MODEL


def main(arguments: Sequence[str]) -> int:
    """Pull one model and print its path. Errors: NotFoundError, CapacityError, ModelError, RequestError."""
    parser = argparse.ArgumentParser(prog="paceline pull", description="Download a model.")
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="MODEL", help=f"catalog name or hub id [{DEFAULT_MODEL}]")
    options = parser.parse_args(arguments)
    print(pull_with_progress(options.model))
    return 0


def pull_with_progress(name: str) -> Path:
    """The model's path, once it is here; the bar appears with the first byte. Errors: as `formats.pull.pull`."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from paceline.formats.pull import pull

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(file=sys.stderr))
    task = bar.add_task(name, total=None)

    def report(num_done: int, num_bytes: int | None) -> None:
        bar.start()
        bar.update(task, completed=num_done, total=num_bytes)

    try:
        return pull(name, report)
    finally:
        if bar.live.is_started:
            bar.stop()
