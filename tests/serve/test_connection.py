"""A client that sends without end, stalls or does not read is let go, and nobody else notices."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from paceline.serve import connection
from paceline.serve.state import ModelText
from tests.engine.looped_engine import LoopedEngine
from tests.serve.looped_server import LoopedServer, looped_server, tiny_text, until

POST = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
MANY = 16


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    """The text side of a tiny model."""
    return tiny_text(tmp_path_factory.mktemp("connection"))


@contextmanager
def connected(server: LoopedServer) -> Iterator[socket.socket]:
    """A bare connection."""
    url = server.http.base_url
    with socket.create_connection((url.host, url.port), timeout=20) as client:
        yield client


def until_closed(client: socket.socket) -> bytes:
    """All that comes until the server closes; a reset is a close."""
    received = b""
    try:
        while data := client.recv(1 << 16):
            received += data
    except ConnectionError:
        pass
    return received


def flood(client: socket.socket, start: bytes, unit: bytes) -> None:
    """Send `start`, then many times `unit`, as far as the server takes it."""
    try:
        client.sendall(start)
        for _ in range(MANY * connection.MAX_HEAD_BYTES // len(unit)):
            client.sendall(unit)
    except ConnectionError:
        pass


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        (POST + b"x: ", b"y" * 8192),
        (POST, b"x: y\r\n" * 1000),
        (b"GET /", b"y" * 8192),
        (b"", b"\r\n" * 4096),
        (POST + b"transfer-encoding: chunked\r\n\r\n2;", b"y" * 8192),
        (POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: ", b"y" * 8192),
        (POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"x: y\r\n" * 1000),
    ],
    ids=["header", "headers", "path", "empty lines", "chunk extension", "trailer", "trailers"],
)
def test_what_has_no_end_is_cut_off(text: ModelText, monkeypatch: pytest.MonkeyPatch, start: bytes, unit: bytes) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.01)
    monkeypatch.setattr(connection, "HEAD_S", 1000.0)
    with looped_server(text, LoopedEngine()) as server:
        with connected(server) as client:
            flood(client, start, unit)
            until_closed(client)  # the connection's own timeout fails the test when the server waits for more
        assert server.http.get("/health").status_code == 200


def test_headers_over_the_limit_are_told_so(text: ModelText) -> None:
    with looped_server(text, LoopedEngine()) as server, connected(server) as client:
        client.sendall(POST + b"x: " + b"y" * (4 * connection.MAX_HEAD_BYTES))
        head, _, body = until_closed(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(body)["error"]["code"] == "headers_too_large"


@pytest.mark.parametrize("start", [b"", b"G", POST, HEALTH + b"GET /he"])
def test_a_client_that_does_not_say_what_it_wants_is_let_go(text: ModelText, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.1)
    with looped_server(text, LoopedEngine()) as server, connected(server) as client:
        for byte in (start[index : index + 1] for index in range(len(start))):
            client.sendall(byte)
        assert until_closed(client).count(b"200 OK") == start.count(b"\r\n\r\n")


def test_an_answer_may_take_longer_than_a_head(text: ModelText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.05)
    body = json.dumps({"prompt": "a", "max_tokens": 5000}).encode()
    with looped_server(text, LoopedEngine(max_model_len=10**6)) as server, connected(server) as client:
        client.sendall(POST + b"content-length: %d\r\n\r\n" % len(body) + body + b"GET /he")
        assert until_closed(client).startswith(b"HTTP/1.1 200 OK")


def test_requests_in_a_row_are_all_answered(text: ModelText) -> None:
    with looped_server(text, LoopedEngine()) as server, connected(server) as client:
        client.sendall(HEALTH * 3000 + HEALTH.replace(b"host", b"connection: close\r\nhost"))
        assert until_closed(client).count(b"HTTP/1.1 200 OK") == 3001


def test_a_reader_that_never_reads_is_let_go(text: ModelText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNREAD_S", 0.1)
    body = json.dumps({"prompt": "a", "max_tokens": 10**9, "stream": True}).encode()
    with looped_server(text, LoopedEngine(max_model_len=2 * 10**9)) as server, connected(server) as client:
        client.sendall(POST + b"content-length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.state.num_answering == 1, "the answer has begun")
        until(lambda: server.state.num_answering == 0, "the answer was given up")
        until(lambda: not server.engine.has_work(), "the engine is idle")
