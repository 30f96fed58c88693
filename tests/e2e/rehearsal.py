"""A stand-in for the server: it serves the page's files and plays given answers, so that each behaviour of the page can be provoked.

The one idea: the test says which events a stream has and whether it then ends, breaks off or hangs. What the real server
sends is the contract tests' matter, and `test_page.py` ends with it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paceline.serve.static import StaticFiles

TIMINGS = {"ttft_ms": 12.4, "tpot_ms": 20.0, "cached_tokens": 16}


@dataclass
class Answer:
    """One scripted answer: text pieces, then how it ends; or an error status instead."""

    pieces: list[str] = field(default_factory=list)
    end: Literal["done", "break", "hang", "error"] = "done"
    status: int = 200
    message: str = ""
    finish_reason: str = "stop"
    prompt_tokens: int = 20
    has_usage: bool = True

    def response(self) -> Response:
        """The HTTP answer."""
        if self.status != 200:
            return JSONResponse({"error": {"message": self.message, "type": "x", "param": None, "code": None}}, self.status)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        yield event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for piece in self.pieces:
            data = event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            for start in range(0, len(data), 7):  # the network cuts where it likes
                yield data[start : start + 7]
        if self.end == "hang":
            await asyncio.Event().wait()
        if self.end == "error":
            yield event({"error": {"message": self.message}})
        if self.end == "done":
            yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish_reason}], "timings": TIMINGS})
            if self.has_usage:
                usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": len(self.pieces)}
                yield event({"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"


def event(body: object) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


@dataclass
class Rehearsal:
    """The running stand-in: where it is, what it will answer, what it was asked."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def chat(self, request: Request) -> Response:
        """Play the next answer."""
        self.asked.append(await request.json() | {"authorization": request.headers.get("authorization")})
        return self.answers.pop(0).response()


@contextmanager
def rehearsal() -> Iterator[Rehearsal]:
    """A stand-in on a free port of the loopback."""
    stage, page = Rehearsal(), StaticFiles()
    routes = [
        Route("/v1/models", lambda _: JSONResponse({"data": [{"id": "rehearsal:1b"}]})),
        Route("/v1/chat/completions", stage.chat, methods=["POST"]),
        *(Route(path, page.serve) for path in page.paths),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes), host="127.0.0.1", port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    started = threading.Event()
    run_startup = server.startup

    async def startup(sockets: Any = None) -> None:
        await run_startup(sockets)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(30)
    stage.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    try:
        yield stage
    finally:
        server.force_exit = server.should_exit = True
        thread.join()
