"""What every request passes before its route: limits on headers, the API key, and the count of answers under way.

The one idea: plain ASGI, one function deep, so a streamed token passes nothing but the server.
"""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.serve.failures import HeadersTooLargeError, UnauthorizedError, error_response
from paceline.serve.state import ServerState

MAX_HEADERS = 128
MAX_HEADER_BYTES = 64 << 10
KEY_REALM = "/v1/"


class Gate:
    """The ASGI middleware."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._keys = [key.encode() for key in state.config.api_key]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an HTTP request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except (HeadersTooLargeError, UnauthorizedError) as error:
            await error_response(error)(scope, receive, send)
            return
        self._state.num_answering += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._state.num_answering -= 1

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise HeadersTooLargeError(
                f"The request has {len(headers)} headers of {size} bytes; the limits are {MAX_HEADERS} and {MAX_HEADER_BYTES}."
            )
        if self._keys and scope["path"].startswith(KEY_REALM) and not self._is_known(headers):
            raise UnauthorizedError("The API key is missing or wrong; expected `Authorization: Bearer KEY`.")

    def _is_known(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        return any(matches) and scheme.lower() == b"bearer"
