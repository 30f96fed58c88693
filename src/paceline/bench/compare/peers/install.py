"""Where peers lie and how they get there: a folder per name and version in the cache, with an environment of its own.

The one idea: a folder is whole when its file `installed`, which is written last, holds the recipe it was made by; any other is thrown
away and made anew.
A lock keeps two processes from making the same one. Nothing of a peer ever reaches the environment that Paceline runs in.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline import env
from paceline.bench.compare.child import Child, run_program
from paceline.bench.report import note
from paceline.errors import CapacityError, EngineError

STAMP = "installed"
INSTALL_TIMEOUT_S = 3600.0


def peer_folder(name: str, version: str) -> Path:
    """Where a peer lies."""
    return env.cache_dir() / "peers" / f"{name}-{version}"


def peer_python(folder: Path) -> Path:
    """The interpreter of a peer's environment."""
    return folder / "venv" / "bin" / "python"


def ensure_installed(folder: Path, recipe: Sequence[str], install: Callable[[Path], None]) -> None:
    """Fill a peer's folder by `install`, unless it was filled by the same recipe. Errors: CapacityError when that fails"""
    if is_whole(folder, recipe):
        return
    with locked(folder):
        if is_whole(folder, recipe):
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            install(folder)
        except EngineError as error:
            raise CapacityError(f"`{folder.name}` could not be installed. {error}") from None
        (folder / STAMP).write_text("\n".join(recipe))


def is_whole(folder: Path, recipe: Sequence[str]) -> bool:
    """Whether a peer's folder was filled to the end by this recipe."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == "\n".join(recipe)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `<path>.lock`. Errors: CapacityError when another process holds it, or the folder cannot be written"""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(path.name + ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise CapacityError(f"Another process is making `{path.name}`; wait for it.") from None
    except OSError as error:
        raise CapacityError(f"`{path.parent}` cannot be written ({error.strerror}).") from None


def make_environment(folder: Path, packages: Sequence[str]) -> None:
    """A virtual environment with packages of pinned versions. Errors: EngineError when it cannot be made"""
    note(f"{folder.name}: installing {', '.join(packages)} …")
    run_program([sys.executable, "-m", "venv", folder / "venv"], INSTALL_TIMEOUT_S)
    run_program([*pip(folder), "install", "--quiet", *packages], INSTALL_TIMEOUT_S)


def pip(folder: Path) -> list[str | Path]:
    """The package client of a peer's environment."""
    return [peer_python(folder), "-m", "pip", "--no-input", "--disable-pip-version-check"]


def run_build(command: Sequence[str | Path], name: str) -> None:
    """Run a build whose lines begin with `[done/all]`, telling every tenth of it. Errors: EngineError when it fails"""
    told = 0
    with Child(command, name=name, timeout_s=INSTALL_TIMEOUT_S) as child:
        for line in child.lines():
            done, _, total = line.partition(b"]")[0].removeprefix(b"[").partition(b"/")
            tenth = 10 * int(done) // int(total) if done.isdigit() and total.isdigit() else 0
            if tenth > told:
                told = tenth
                note(f"{name}: {10 * told} % built …")
