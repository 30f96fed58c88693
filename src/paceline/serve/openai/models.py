"""`GET /v1/models` and `GET /v1/models/{id}`: the one model that is served."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from paceline.serve.state import ServerState


async def list_models(_http: HttpRequest, state: ServerState) -> Response:
    """The list with the served model."""
    return _json({"object": "list", "data": [_model(state)]})


async def get_model(http: HttpRequest, state: ServerState) -> Response:
    """The served model by any of its names. Errors: NotFoundError."""
    state.check_model(str(http.path_params["model_id"]))
    return _json(_model(state))


def _model(state: ServerState) -> dict[str, Any]:
    is_loaded = state.client.state == "ready"
    return {
        "id": state.names.primary,
        "object": "model",
        "created": state.created,
        "owned_by": "paceline",
        "max_model_len": state.client.info.max_model_len if is_loaded else None,
        "root": state.names.root,
        "parent": None,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
