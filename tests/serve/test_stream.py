"""A streamed answer keeps its reader awake, cuts off one that is stuck or gone, and never leaves its requests behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import pytest

from paceline.engine.messages import Finished, Timings, Tokens
from paceline.engine.request import FinishReason
from paceline.engine.streams import EventStream
from paceline.observe.metrics import ServerMetrics
from paceline.serve import stream as stream_module
from paceline.serve.generation import Generation, Piece
from paceline.serve.stream import PING, EventStreamAnswer
from paceline.text.stream import TextStream
from paceline.text.vocabulary import Vocabulary
from tests.engine.looped_engine import looped_request

Message = MutableMapping[str, Any]
LETTERS = Vocabulary(pieces=("a", "b"), kinds=bytes((1, 1)), scheme="byte_level", bos_id=None, eos_ids=(), adds_bos=False)


class PlainWriter:
    """Writes the text alone."""

    def chunks(self, pieces: Iterable[Piece]) -> bytes:
        return "".join(piece.text for piece in pieces).encode()

    def closing(self) -> bytes:
        return b"."


class Reader:
    """An answer's other end: what it was sent, and how it behaves."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.request = looped_request(max_tokens=99)
        self.num_aborts = 0
        self.stream = EventStream([self.request], self._count)
        self.sent: list[Message] = []
        self.has_left = asyncio.Event()
        self.has_more = asyncio.Event()
        self._is_stuck = is_stuck

    def _count(self, _stream: EventStream) -> None:
        self.num_aborts += 1

    async def receive(self) -> Message:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.has_more.set()
        if self._is_stuck and message["type"] == "http.response.body":
            await asyncio.Event().wait()

    def answer(self) -> asyncio.Task[None]:
        generation = Generation(self.stream, lambda _: TextStream(LETTERS), ServerMetrics("x"), self.request.arrived)
        return asyncio.create_task(EventStreamAnswer(generation, PlainWriter())({"type": "http"}, self.receive, self.send))

    def say(self, token_id: int) -> None:
        self.stream.push(Tokens(self.request.id, 0, [token_id]))

    def finish(self, reason: FinishReason = "length", message: str = "") -> None:
        timings = Timings(0.0, 0.0, 0.0, 0.0, 0.0, 1, 0, 0, 0)
        self.stream.push(Finished(self.request.id, 0, reason, None, 2, 1, timings, message))

    @property
    def data(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(work(), 10)

    asyncio.run(whole())


def test_an_answer_is_its_pieces_then_the_closing_then_done() -> None:
    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        reader.say(0)
        reader.say(1)
        reader.finish()
        await task
        assert reader.data == b"ab.data: [DONE]\n\n"
        assert reader.sent[0]["status"] == 200
        assert [message.get("more_body") for message in reader.sent[1:]] == [True, True, False]
        assert reader.num_aborts == 0

    run(work)


def test_a_silent_stream_is_kept_awake_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "PING_S", 0.02)

    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        while reader.data.count(PING) < 2:
            reader.has_more.clear()
            await reader.has_more.wait()
        reader.finish()
        await task
        assert reader.data.replace(PING, b"") == b".data: [DONE]\n\n"

    run(work)


def test_a_reader_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "PING_S", 0.02)
    monkeypatch.setattr(stream_module, "STALL_S", 0.05)

    async def work() -> None:
        reader = Reader(is_stuck=True)
        task = reader.answer()
        reader.say(0)
        await task
        assert reader.num_aborts == 1

    run(work)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_reader_that_leaves_ends_its_request_at_once(has_begun: bool) -> None:
    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        if has_begun:
            reader.say(0)
            await reader.has_more.wait()
        reader.has_left.set()
        await task
        assert reader.num_aborts == 1
        assert b"[DONE]" not in reader.data

    run(work)


def test_a_cancelled_answer_ends_its_request_and_stays_cancelled() -> None:
    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        reader.say(0)
        await reader.has_more.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader.num_aborts == 1

    run(work)


def test_an_error_before_the_first_byte_has_a_status() -> None:
    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        reader.finish("error", "It broke.")
        await task
        assert reader.sent[0]["status"] == 500
        assert b"It broke." in reader.data

    run(work)


def test_an_error_after_the_first_byte_is_an_event_and_the_end() -> None:
    async def work() -> None:
        reader = Reader()
        task = reader.answer()
        reader.say(0)
        reader.finish("error", "It broke.")
        await task
        assert reader.sent[0]["status"] == 200
        assert reader.data.startswith(b'adata: {"error":{"message":"It broke."')
        assert b"[DONE]" not in reader.data
        assert reader.sent[-1]["more_body"] is False

    run(work)
