"""The engine's own process: `python -m paceline.engine.child FD MODEL CONFIG`, started by `engine.launch`.

The one idea: it lives exactly as long as its parent's end of the socket. An end of file there ends it; Ctrl-C is the
parent's to handle; SIGTERM ends it between two steps.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paceline.config import EngineConfig
from paceline.engine.frames import FrameReader, decode_command, encode_frame
from paceline.engine.loop import failed_by, run_loop
from paceline.engine.messages import PROTOCOL_VERSION, Command, Progress, Ready, Report

RECEIVE_BYTES = 1 << 20


class SocketCommands:
    """Commands from a socket: waits when told to, else takes what lies there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()

    def take(self, *, wait: bool) -> list[Command] | None:
        """All whole commands that have arrived, or None at the end of the stream."""
        commands: list[Command] = []
        flags = 0 if wait else socket.MSG_DONTWAIT
        while True:
            try:
                data = self._connection.recv(RECEIVE_BYTES, flags)
            except BlockingIOError:
                return commands
            except ConnectionError:
                return None
            if not data:
                return None
            commands += [decode_command(payload) for payload in self._reader.feed(data)]
            if commands:
                flags = socket.MSG_DONTWAIT


def serve_engine(connection: socket.socket, config: EngineConfig, model_path: Path) -> int:
    """Load the engine and run its loop until the parent leaves; give the exit code. The process boundary: every error is reported."""
    send = _sender(connection)
    try:
        from paceline.engine.build import build_engine

        engine = build_engine(config, model_path, lambda stage, fraction: send(Progress(stage, fraction)))
        try:
            send(Ready(PROTOCOL_VERSION, engine.info))
            run_loop(engine, SocketCommands(connection), send)
        finally:
            engine.close()
    except ConnectionError:
        return 0
    except Exception as error:
        with suppress(OSError):
            send(failed_by(error))
        return 1
    return 0


def _sender(connection: socket.socket) -> Callable[[Report], None]:
    return lambda report: connection.sendall(encode_frame(report))


def _end(_signal: int, _frame: object) -> None:
    raise SystemExit(0)


def main(arguments: list[str]) -> int:
    """Take the inherited socket's number, the model's path and the config as JSON; run; give the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    file_descriptor, model_path, config = arguments
    with socket.socket(fileno=int(file_descriptor)) as connection:
        return serve_engine(connection, EngineConfig(**json.loads(config)), Path(model_path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
