"""The one table from errors to HTTP answers, in the shape that OpenAI clients read.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

The one idea: a route raises; nothing else in `serve/` chooses a status. Failures that would repeat are 4xx, since clients
send 408, 409, 429 and 5xx again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from paceline.errors import CapacityError, EngineError, ModelError, NotFoundError, PacelineError, RequestError

MAX_MESSAGE_CHARS = 1000


class UnavailableError(CapacityError):
    """The server takes no requests now: it loads or drains."""


class BodyTooLargeError(RequestError):
    """A request body over the limit."""


class HeadersTooLargeError(RequestError):
    """Request headers over the limit."""


class UnauthorizedError(RequestError):
    """A missing or wrong API key."""


class SlowBodyError(RequestError):
    """A request body that stopped arriving."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How one kind of error is answered."""

    status: int
    type: str
    code: str


FAILURES: tuple[tuple[type[Exception], Failure], ...] = (
    (UnauthorizedError, Failure(401, "authentication_error", "invalid_api_key")),
    (BodyTooLargeError, Failure(413, "invalid_request_error", "body_too_large")),
    (HeadersTooLargeError, Failure(431, "invalid_request_error", "headers_too_large")),
    (SlowBodyError, Failure(400, "invalid_request_error", "body_timeout")),
    (NotFoundError, Failure(404, "invalid_request_error", "not_found")),
    (RequestError, Failure(400, "invalid_request_error", "invalid_value")),
    (UnavailableError, Failure(503, "server_error", "unavailable")),
    (CapacityError, Failure(429, "rate_limit_error", "engine_overloaded")),
    (ModelError, Failure(500, "server_error", "model_error")),
    (EngineError, Failure(500, "server_error", "engine_error")),
)
"""The first row whose class fits is taken, so subclasses come first."""

UNEXPECTED = Failure(500, "server_error", "internal_error")


def failure_of(error: Exception) -> Failure:
    """How this error is answered."""
    if isinstance(error, HTTPException):
        return Failure(error.status_code, "invalid_request_error", "not_found" if error.status_code == 404 else "method_not_allowed")
    return next((failure for kind, failure in FAILURES if isinstance(error, kind)), UNEXPECTED)


def error_body(error: Exception) -> bytes:
    """The JSON body of an error; an unexpected one gives no details away."""
    failure = failure_of(error)
    message = str(error) if isinstance(error, PacelineError) else "The server failed on this request."
    if isinstance(error, HTTPException):
        message = error.detail
    return msgspec.json.encode(
        {
            "error": {
                "message": message[:MAX_MESSAGE_CHARS],
                "type": failure.type,
                "param": getattr(error, "param", None),
                "code": getattr(error, "code", None) or failure.code,
            }
        }
    )


def error_response(error: Exception) -> Response:
    """The whole HTTP answer to an error; `retry-after` where waiting helps."""
    status = failure_of(error).status
    headers: dict[str, str] = {}
    if status in (429, 503):
        headers["retry-after"] = str(max(1, round(getattr(error, "retry_after_s", None) or 1)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, BodyTooLargeError | HeadersTooLargeError | SlowBodyError):
        headers["connection"] = "close"
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    return Response(error_body(error), status_code=status, headers=headers, media_type="application/json")
