"""One client's connection: uvicorn's protocol with bounds on what a client may send, withhold and leave unread.

The one idea: bytes that complete neither headers nor a piece of body are counted and timed, whatever they pretend to be (a
header without end, a trailer, a chunk's extension, empty lines). So nobody is given memory or a socket for promises.

Limits of whole requests are elsewhere: `middleware.py` (headers), `body.py` (bodies), `stream.py` (readers).
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paceline.serve.failures import HeadersTooLargeError, error_response

MAX_HEAD_BYTES = 256 << 10
"""Most bytes in a row that complete nothing; whole headers are held to less by `middleware.py`, with a proper answer."""
HEAD_S = 20.0
"""The longest from a connection's (or a request's) first byte to the end of its headers."""
UNREAD_S = 120.0
"""The longest that a reader may leave our buffer full."""
LINGER_S = 1.0
"""How long a refused client's bytes are still taken, and thrown away."""


class GuardedConnection(HttpToolsProtocol):
    """The asyncio protocol that uvicorn makes for each connection."""

    _num_idle_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _is_in_body = False
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """asyncio: a client is here, and must say what it wants."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the client is gone."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes from the client."""
        if self._is_refused:
            return
        if self._num_idle_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        self._num_idle_bytes += len(data)
        if not self._is_in_body or self.cycle.response_complete:
            self._await_head()
        super().data_received(data)
        if self._is_in_head:
            self._await_head()

    def on_message_begin(self) -> None:
        """httptools: a request's first byte."""
        self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: a header, or a trailer, which nobody here reads."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """httptools: the request may begin."""
        self._num_idle_bytes, self._is_in_head, self._is_in_body = 0, False, True
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of body."""
        self._num_idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole; what comes now is the next one's head."""
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """uvicorn: an answer is written; while requests of this client wait, no more are read."""
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()

    def pause_writing(self) -> None:
        """asyncio: the client does not read as fast as we write."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """asyncio: the client has read."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._give_up_head)

    def _give_up_head(self) -> None:
        """The time for a head is over: close, unless an answer is still being written."""
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()
        else:
            self.transport.close()

    def _refuse_head(self) -> None:
        """Answer 431 where no other answer has begun, and close, a little later: a close on unread bytes loses the answer."""
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        answer = error_response(HeadersTooLargeError(f"The headers are longer than {MAX_HEAD_BYTES} bytes."))
        head = b"".join(b"%s: %s\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + head + b"\r\n" + bytes(answer.body))
        self.loop.call_later(LINGER_S, self.transport.close)
