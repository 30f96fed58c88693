"""Every error has one answer, in OpenAI's shape, and an unexpected one gives nothing away."""

from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException

from paceline.errors import CapacityError, ContextLengthError, EngineError, NotFoundError, PacelineError, RequestError
from paceline.serve.failures import BodyTooLargeError, UnauthorizedError, UnavailableError, error_response


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (RequestError("`n` is 0.", param="n"), 400, "invalid_request_error", "n", "invalid_value"),
        (RequestError("No.", param="echo", code="unsupported_parameter"), 400, "invalid_request_error", "echo", "unsupported_parameter"),
        (ContextLengthError(num_tokens=9, max_model_len=8), 400, "invalid_request_error", "messages", "context_length_exceeded"),
        (NotFoundError("No.", param="model", code="model_not_found"), 404, "invalid_request_error", "model", "model_not_found"),
        (BodyTooLargeError("Big."), 413, "invalid_request_error", None, "body_too_large"),
        (UnauthorizedError("Who?"), 401, "authentication_error", None, "invalid_api_key"),
        (UnavailableError("Loading."), 503, "server_error", None, "unavailable"),
        (CapacityError("Full.", retry_after_s=2.0), 429, "rate_limit_error", None, "engine_overloaded"),
        (EngineError("Broken."), 500, "server_error", None, "engine_error"),
        (HTTPException(404, "Nothing here."), 404, "invalid_request_error", None, "not_found"),
        (HTTPException(405), 405, "invalid_request_error", None, "method_not_allowed"),
    ],
)
def test_each_error_has_its_status_and_shape(error: Exception, status: int, kind: str, param: str | None, code: str) -> None:
    response = error_response(error)
    body = json.loads(bytes(response.body))["error"]
    assert response.status_code == status
    assert body == {"message": body["message"], "type": kind, "param": param, "code": code}
    if isinstance(error, PacelineError):
        assert body["message"] == str(error)


def test_waiting_helps_is_said_in_seconds() -> None:
    assert error_response(CapacityError("Full.", retry_after_s=2.4)).headers["retry-after"] == "2"
    assert error_response(UnavailableError("Loading.")).headers["retry-after"] == "1"
    assert "retry-after" not in error_response(RequestError("No.")).headers


def test_an_unexpected_error_gives_no_details_away() -> None:
    response = error_response(ValueError("/secret/path at 0x7f"))
    assert response.status_code == 500
    assert b"secret" not in bytes(response.body)


def test_a_long_message_is_cut() -> None:
    assert len(bytes(error_response(RequestError("x" * 100_000)).body)) < 8192
