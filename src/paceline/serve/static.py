"""Serves the web page: whatever files lie in `serve/static`, read once at start, with a strict content security policy.

The one idea: the files are known before the first request, so no path from a request ever reaches the file system.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
MEDIA_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".json": "application/json"}
HINT = b"""<!doctype html><meta charset="utf-8"><title>Paceline</title>
<h1>Paceline serves here</h1>
<p>The chat page is not part of this installation. The API is: POST <code>/v1/chat/completions</code>.</p>
"""


class StaticFiles:
    """The page's files in memory."""

    def __init__(self, folder: Path = FOLDER) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
        self._files = {path.relative_to(folder).as_posix(): (path.read_bytes(), _media_type(path)) for path in paths}

    @property
    def paths(self) -> list[str]:
        """The paths that have something to serve; `/` always does: `index.html`, or a hint when there is none."""
        return ["/", *("/" + name for name in self._files)]

    async def serve(self, request: Request) -> Response:
        """The file of the request's path."""
        name = request.url.path.removeprefix("/") or "index.html"
        content, media_type = self._files.get(name, (HINT, "text/html"))
        return Response(content, media_type=media_type, headers=HEADERS)


def _media_type(path: Path) -> str:
    return MEDIA_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
