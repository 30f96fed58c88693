"""Keeps what a time model learned between two runs: one small JSON file per model, machine, threads and numerics.

The one idea: a file that cannot be read is as good as none. It is written beside itself and renamed, so no reader ever sees half of one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from paceline import env
from paceline.log import log
from paceline.planner.time_model import TimeModel

VERSION = 1
MOST_KEPT = 64
"""Files kept; the ones written longest ago go first."""


class KeptTimeModel:
    """A time model and the file that it is kept in; without a file it is forgotten with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.model = TimeModel() if path is None else load_time_model(path)
        self._path = path

    def keep(self) -> None:
        """Write what was learned, if anything was."""
        if self._path is not None and self.model.num_steps:
            save_time_model(self._path, self.model)


def time_model_path(model_digest: str, numerics: str, threads: int, machine: str) -> Path:
    """Where the model of this combination is kept."""
    parts = "\0".join((model_digest, numerics, str(threads), machine))
    return env.cache_dir() / "time_models" / f"{blake2b(parts.encode(), digest_size=12).hexdigest()}.json"


def load_time_model(path: Path) -> TimeModel:
    """The model kept at `path`, or a fresh one when there is none that can be read."""
    model = TimeModel()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] == VERSION:
            model.restore(kept["state"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        log("warning", "time_model.unreadable", path=str(path), error=error)
        return TimeModel()
    return model


def save_time_model(path: Path, model: TimeModel) -> None:
    """Keep a model for the next start; a disk that refuses costs a line in the log."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"version": VERSION, "state": model.state()}), encoding="utf-8")
        draft.replace(path)
        written = sorted(path.parent.glob("*.json"), key=lambda kept: kept.stat().st_mtime)
        for old in written[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log("warning", "time_model.not_kept", path=str(path), error=error)
        with suppress(OSError):
            draft.unlink()
