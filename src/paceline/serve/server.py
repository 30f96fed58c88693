"""Runs the application: listens at once, loads in the background, drains on the first signal, ends on the second.

    listening ──> loading ──> ready ──(SIGTERM, Ctrl-C)──> draining ──> closed, exit 0
                     └─ failed: the engine's message, exit 1

The one idea: the engine's child was started before this module was imported, so its loading and our imports overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from paceline.config import EngineConfig, ServeConfig
from paceline.engine.client import EngineClient
from paceline.errors import PacelineError, RequestError
from paceline.formats.checkpoint import Checkpoint
from paceline.formats.open import open_checkpoint
from paceline.log import log
from paceline.serve.app import build_app
from paceline.serve.connection import GuardedConnection
from paceline.serve.openai.sampling import generation_defaults
from paceline.serve.state import ModelText, ServerState, model_names
from paceline.text.prompt import load_chat_encoder
from paceline.text.tokenizer import load_tokenizer

KEEP_ALIVE_S = 65
POLL_S = 0.05
BACKLOG = 1024
LAST_WORDS_S = 1.0
"""How long an aborted answer may take to send its last event."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is served: a model, under the name it was asked for."""

    asked: str
    path: Path
    engine_config: EngineConfig
    serve_config: ServeConfig


class _HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`."""
        yield


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Errors: RequestError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise RequestError(f"Cannot listen on `{host}:{port}`: {error.strerror or error}.", param="port") from None
    return listener


async def serve(service: Service, client: EngineClient, on_ready: Callable[[str, ServerState], None]) -> None:
    """Serve until a signal, drain, and return; `on_ready` is told the address once requests are taken.

    Errors:  ModelError, EngineError when the model does not load · RequestError when the address is taken
    """
    config = service.serve_config
    state = ServerState(config, client, model_names(config, service.asked, service.path), seed=service.engine_config.seed)
    stop = _stop_on_signals(state)
    try:
        listener = open_socket(config.host, config.port)
        async with _listening(listener, state):
            await _first(stop.wait(), _load(service, state))
            if not stop.is_set():
                on_ready(_address(listener), state)
            await stop.wait()
            await _drain(state)
    finally:
        await client.close()
        state.close()


@asynccontextmanager
async def _listening(listener: socket.socket, state: ServerState) -> AsyncIterator[None]:
    """Answer HTTP while the block runs, and close the socket after it."""
    http = _HttpServer(uvicorn_config(state))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        yield
    finally:
        http.should_exit = True
        await serving


def uvicorn_config(state: ServerState) -> uvicorn.Config:
    """How uvicorn serves the application: quietly, without its own lifespan or access log."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        build_app(state),
        http=GuardedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )


def _stop_on_signals(state: ServerState) -> asyncio.Event:
    """An event that the first signal sets; the second one ends the process at once (the child follows its parent)."""
    stop = asyncio.Event()

    def receive(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log("info", "server.draining", open=state.num_answering)
        state.is_draining = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, receive, number)
    return stop


async def _first(*works: Coroutine[object, object, object]) -> None:
    """Wait for the first of several works, cancel the others, and raise what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


async def _load(service: Service, state: ServerState) -> None:
    """Wait for the engine, and meanwhile load the text side on a thread."""
    text = asyncio.create_task(asyncio.to_thread(_load_text, service))
    try:
        await state.client.start()
    except PacelineError:
        await asyncio.gather(text, return_exceptions=True)  # of two errors the engine's is told
        raise
    state.model = await text


def _load_text(service: Service) -> ModelText:
    return model_text(open_checkpoint(service.path), service.serve_config.chat_template)


def model_text(checkpoint: Checkpoint, template_file: str | None) -> ModelText:
    """The tokenizer, chat template and defaults of a model. Errors: ModelError, RequestError for the template file."""
    tokenizer = load_tokenizer(checkpoint)
    chat = load_chat_encoder(tokenizer, None if template_file is None else _read_template(template_file))
    return ModelText(tokenizer, chat, generation_defaults(checkpoint.files))


def _read_template(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"The chat template `{path}` cannot be read: {error}.", param="chat_template") from None


async def _drain(state: ServerState) -> None:
    """Let open requests finish within the limit, then end them; each still gets its last event."""
    await _until_idle(state, state.config.drain_timeout_s)
    await state.client.close()
    await _until_idle(state, LAST_WORDS_S)


async def _until_idle(state: ServerState, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while state.num_answering and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
