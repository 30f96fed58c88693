"""A small HTTP/1.1 client for load: one request, its body as it arrives, each piece with its moment.

The one idea: the load generator shares the cores with what it measures, so it does as little as it can: one connection per
request, httptools' parser, and events cut from the bytes without building response objects.

It follows no redirects, keeps no connection and knows no proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from paceline.errors import EngineError, RequestError

READ_BYTES = 1 << 16
MAX_ERROR_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is: scheme, host, port and the path before `/v1`."""

    host: str
    port: int
    prefix: str
    is_tls: bool
    api_key: str | None = None

    @staticmethod
    def parse(url: str, api_key: str | None = None) -> Endpoint:
        """The endpoint of an address such as `http://127.0.0.1:8000`, with or without `/v1`. Errors: RequestError."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"`{url}` is no server's address; expected something like `http://127.0.0.1:8000`.", param="url")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        is_tls = parts.scheme == "https"
        return Endpoint(parts.hostname, parts.port or (443 if is_tls else 80), prefix, is_tls, api_key)

    def head(self, method: str, path: str, body: bytes) -> bytes:
        """The request's head in bytes."""
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            "connection: close",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *([f"authorization: Bearer {self.api_key}"] if self.api_key else []),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Body:
    """What httptools calls back: collects body pieces and the end."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_complete = False

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = True


async def read_body(endpoint: Endpoint, method: str, path: str, body: bytes = b"") -> AsyncIterator[bytes]:
    """The pieces of a 200 answer's body as they arrive.

    Errors:  EngineError for another status, a connection that fails, or an answer that breaks off
    """
    try:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.is_tls or None)
    except OSError as error:
        raise EngineError(f"`{endpoint.host}:{endpoint.port}` cannot be reached: {error.strerror or error}.") from error
    try:
        writer.write(endpoint.head(method, path, body) + body)
        await writer.drain()
        async for piece in _pieces(reader):
            yield piece
    except (OSError, httptools.HttpParserError) as error:
        raise EngineError(f"The connection failed: {error}.") from error
    finally:
        writer.close()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    answer = _Body()
    parser = httptools.HttpResponseParser(answer)
    refusal = b""
    while not answer.is_complete:
        data = await reader.read(READ_BYTES)
        if not data:
            raise EngineError("The server closed the connection before the answer's end.")
        parser.feed_data(data)
        pieces, answer.pieces = answer.pieces, []
        if pieces and parser.get_status_code() != 200:
            refusal = (refusal + b"".join(pieces))[:MAX_ERROR_BYTES]
        else:
            for piece in pieces:
                yield piece
    if parser.get_status_code() != 200:
        raise EngineError(f"The server answered {parser.get_status_code()}: {refusal.decode(errors='replace').strip()}")


async def read_all(endpoint: Endpoint, method: str, path: str, body: bytes = b"") -> bytes:
    """The whole body of a 200 answer. Errors: as `read_body`."""
    return b"".join([piece async for piece in read_body(endpoint, method, path, body)])


async def read_events(endpoint: Endpoint, path: str, body: bytes) -> AsyncIterator[bytes]:
    """The data of each server-sent event of a streamed answer, in order. Errors: as `read_body`."""
    rest = b""
    async for piece in read_body(endpoint, "POST", path, body):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
