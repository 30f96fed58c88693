"""A web server on loopback that serves bytes and misbehaves on request: cuts, refuses, lies, redirects.

The one idea: a test says what each address answers, and afterwards reads what was asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Route:
    """What one address answers. `statuses` are given first, one a request; `cut_after` ends each body early."""

    body: bytes = b""
    statuses: list[int] = field(default_factory=list)
    cut_after: int | None = None
    takes_ranges: bool = True
    shift_ranges: int = 0
    redirect_to: str | None = None
    says_length: bool = True


@dataclass
class FileServer:
    """Routes by path, the base address, and the requests that came: path, Range, Authorization."""

    address: str
    routes: dict[str, Route]
    requests: list[tuple[str, str | None, str | None]]

    def ranges(self, path: str) -> list[str | None]:
        """The Range headers of the requests for one path, in order."""
        return [asked for asked_path, asked, _ in self.requests if asked_path == path]


@contextmanager
def file_server() -> Iterator[FileServer]:
    """A server without routes yet; every unknown path is a 404."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server = FileServer(f"http://127.0.0.1:{httpd.server_address[1]}", {}, [])
    httpd.files = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        files: FileServer = self.server.files  # type: ignore[attr-defined]
        path = self.path.split("?")[0]
        files.requests.append((path, self.headers.get("Range"), self.headers.get("Authorization")))
        route = files.routes.get(path)
        if route is None:
            self.send_error(404)
        elif route.statuses:
            self.send_error(route.statuses.pop(0))
        elif route.redirect_to is not None:
            self.send_response(302)
            self.send_header("Location", route.redirect_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(route)

    def _send(self, route: Route) -> None:
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and route.takes_ranges else 0
        if start and start >= len(route.body):
            self.send_error(416)
            return
        body = route.body[start + route.shift_ranges :] if start else route.body
        self.send_response(206 if start else 200)
        if start:
            first = start + route.shift_ranges
            self.send_header("Content-Range", f"bytes {first}-{len(route.body) - 1}/{len(route.body)}")
        if route.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the client may have heard enough
            self.wfile.write(body if route.cut_after is None else body[: route.cut_after])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test reads `requests`."""
