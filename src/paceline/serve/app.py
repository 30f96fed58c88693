"""The HTTP application: the table of routes, and the two places where errors become answers.

The one idea: a route is a function of a request and the server's state. Everything it raises is looked up in `failures.py`.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

import paceline
from paceline.errors import PacelineError
from paceline.log import log
from paceline.observe.metrics import CONTENT_TYPE
from paceline.serve.failures import error_response
from paceline.serve.middleware import Gate
from paceline.serve.openai.chat import chat_completions
from paceline.serve.openai.completions import completions
from paceline.serve.openai.models import get_model, list_models
from paceline.serve.state import ServerState
from paceline.serve.static import StaticFiles

Handler = Callable[[HttpRequest, ServerState], Awaitable[ASGIApp]]

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/completions", completions),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{model_id:path}", get_model),
)


async def health(_http: HttpRequest, state: ServerState) -> Response:
    """200 when requests are taken, else 503; the JSON says which."""
    stage, fraction = state.client.load_progress
    body: dict[str, object] = {"status": state.health, "model": state.names.primary}
    if state.health == "loading":
        body["loading"] = {"stage": stage, "fraction": fraction}
    return Response(msgspec.json.encode(body), status_code=200 if state.health == "ready" else 503, media_type="application/json")


async def version(_http: HttpRequest, _state: ServerState) -> Response:
    """The server's version."""
    return Response(msgspec.json.encode({"version": paceline.__version__}), media_type="application/json")


async def metrics(_http: HttpRequest, state: ServerState) -> Response:
    """The counters as Prometheus text."""
    return Response(state.metrics.render(msgspec.structs.asdict(state.client.stats)), media_type=CONTENT_TYPE)


OPERATIONS: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/health", health),
    ("GET", "/version", version),
    ("GET", "/metrics", metrics),
)


def build_app(state: ServerState) -> Starlette:
    """The application over this state."""
    static = StaticFiles()
    routes = [Route(path, _endpoint(handler, state), methods=[method]) for method, path, handler in (*ROUTES, *OPERATIONS)]
    routes += [Route(path, static.serve, methods=["GET"]) for path in static.paths]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Gate, state=state)],
        exception_handlers={PacelineError: _refuse, HTTPException: _refuse, ClientDisconnect: _drop, Exception: _fail},
    )


def _endpoint(handler: Handler, state: ServerState) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def endpoint(http: HttpRequest) -> Response:
        return cast(Response, await handler(http, state))  # Starlette only calls it, as any ASGI application

    return endpoint


async def _refuse(_http: HttpRequest, error: Exception) -> Response:
    return error_response(error)


async def _drop(_http: HttpRequest, _error: Exception) -> Response:
    return Response(status_code=400)


async def _fail(http: HttpRequest, error: Exception) -> Response:
    log("error", "request.crashed", path=http.url.path, error=type(error).__name__)
    traceback.print_exception(error)
    return error_response(error)
