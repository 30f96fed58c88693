"""Starts the engine's child process: exec with one end of a socket pair, never a fork of a running engine.

The one idea: this module imports almost nothing, so a server can start the child first and import the rest of itself
while the child loads the model.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline import env
from paceline.config import EngineConfig


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A started child and our end of its socket pair."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def launch_engine(config: EngineConfig, model_path: Path) -> EngineProcess:
    """Start a child that loads `model_path`; it reports on the socket. Errors: OSError when the system refuses."""
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = [str(theirs.fileno()), str(model_path), json.dumps(asdict(config))]
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline.engine.child", *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env=env.child_environment(),
        )
    return EngineProcess(process, ours)
