"""The real application over a looped engine, on a real socket, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from paceline.config import ServeConfig
from paceline.engine.client import InProcessClient
from paceline.formats.open import open_checkpoint
from paceline.serve.app import build_app
from paceline.serve.connection import GuardedConnection
from paceline.serve.server import model_text, open_socket
from paceline.serve.state import ModelNames, ModelText, ServerState
from tests.engine.looped_engine import LoopedEngine
from tests.generators.tiny_models import tiny_gguf


@dataclass
class LoopedServer:
    """A running server and what is behind it."""

    http: httpx.Client
    state: ServerState
    engine: LoopedEngine
    loop: asyncio.AbstractEventLoop


def tiny_text(folder: Path) -> ModelText:
    """The text side of a tiny model."""
    return model_text(open_checkpoint(tiny_gguf(folder / "tiny.gguf", "llama")), None)


@contextmanager
def looped_server(
    text: ModelText, engine: LoopedEngine, config: ServeConfig | None = None, *, max_open: int = 64
) -> Iterator[LoopedServer]:
    """Serve until the block ends."""
    config = config or ServeConfig()
    listener = open_socket("127.0.0.1", 0)
    ready: list[LoopedServer] = []
    has_started, is_over = threading.Event(), asyncio.Event()

    async def run() -> None:
        client = InProcessClient(engine, max_open=max_open)
        state = ServerState(config, client, ModelNames("tiny", frozenset({"alias"}), "tiny.gguf"), seed=0)
        state.model = text
        await client.start()
        http = uvicorn.Server(
            uvicorn.Config(build_app(state), http=GuardedConnection, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        )
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        host, port = listener.getsockname()
        http_client = httpx.Client(base_url=f"http://{host}:{port}", timeout=30)
        ready.append(LoopedServer(http_client, state, engine, asyncio.get_running_loop()))
        has_started.set()
        await is_over.wait()
        await client.close()
        http.should_exit = True
        await serving
        state.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert has_started.wait(10)
    try:
        yield ready[0]
    finally:
        ready[0].http.close()
        ready[0].loop.call_soon_threadsafe(is_over.set)
        thread.join(20)
        assert not thread.is_alive()


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition that another thread brings about."""
    deadline = time.monotonic() + 10
    gate = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, what
        gate.wait(0.005)
