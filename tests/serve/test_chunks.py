"""Chunks joined are the whole answer; every stream has one role, one finish per choice, and its figures at the end."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from paceline.engine.messages import Event, Finished, Timings, TokenLogprobs, Tokens
from paceline.engine.request import FinishReason, Request
from paceline.engine.streams import EventStream
from paceline.errors import EngineError
from paceline.formats.open import open_checkpoint
from paceline.observe.metrics import ServerMetrics
from paceline.sampling.params import SamplingParams
from paceline.serve.generation import Generation
from paceline.serve.openai.chunks import Answer, AnswerChunks, ChatShape, CompletionShape, Shape, WholeChoices
from paceline.text.stream import TextStream
from paceline.text.tokenizer import Tokenizer, load_tokenizer
from tests.generators.tiny_models import tiny_gguf


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(open_checkpoint(tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")))


class Played:
    """One call whose engine events are given beforehand."""

    def __init__(self, tokenizer: Tokenizer, shape: Shape, *, n: int = 1, include_usage: bool = False, logprobs: int | None = None) -> None:
        self.tokenizer = tokenizer
        params = SamplingParams(n=n, seed=9, max_tokens=99, logprobs=logprobs, stop=("STOP",))
        request = Request(id="call", prompt_ids=[1, 2, 3], params=params, arrived=time.monotonic())
        self.stream = EventStream([request], lambda stream: None)
        self.metrics = ServerMetrics("tiny")
        self.generation = Generation(
            self.stream, lambda one: TextStream(tokenizer.vocabulary, one.params.stop), self.metrics, request.arrived
        )
        self.answer = Answer("call", "tiny", shape, tokenizer.token_bytes, ["`x` was ignored."], include_usage)

    def events(self, text: str, index: int = 0, *, reason: FinishReason = "stop", stop_reason: str | int | None = "STOP") -> list[Event]:
        """A token event per byte of `text`, then the end."""
        timings = Timings(self.generation.received, 0.0, 0.0, time.monotonic(), 0.0, 3, 2, 0, 0)
        ids = [self.tokenizer.encode(character, add_special=False, parse_special=False) for character in text]
        wants = self.stream.requests[0].params.logprobs is not None
        tokens: list[Event] = [
            Tokens("call", index, [token_id], [TokenLogprobs(-1.5, 1, [token_id], [-1.5])] if wants else None)
            for one in ids
            for token_id in one
        ]
        return [*tokens, Finished("call", index, reason, stop_reason, 3, len(tokens), timings)]

    def chunks(self, batches: list[list[Event]]) -> list[dict[str, Any]]:
        """What is streamed, as JSON."""

        async def run() -> bytes:
            writer, data = AnswerChunks(self.answer, self.generation), b""
            reading = self.generation.batches()
            for batch in batches:
                for event in batch:
                    self.stream.push(event)
                data += writer.chunks(await anext(reading))
            return data + writer.closing()

        data = asyncio.run(run())
        assert data.endswith(b"\n\n")
        return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n")[:-1]]

    def whole(self, batches: list[list[Event]]) -> dict[str, Any]:
        """What is answered at once, as JSON."""

        async def run() -> bytes:
            choices = WholeChoices(self.answer, self.generation)
            for batch in batches:
                for event in batch:
                    self.stream.push(event)
            async for pieces in self.generation.batches():
                choices.add(pieces)
            return choices.body()

        whole: dict[str, Any] = json.loads(asyncio.run(run()))
        return whole


def joined(chunks: list[dict[str, Any]], index: int) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in choices)


@pytest.mark.parametrize("shape", [ChatShape(), CompletionShape()])
@pytest.mark.parametrize("text", ["", "a", "héllo 👩‍👧 wörld", "one STO two S", "cut STOP", '"\\\n\u2028'])
def test_chunks_joined_are_the_whole_answer_however_steps_fall(tokenizer: Tokenizer, shape: Shape, text: str) -> None:
    events = Played(tokenizer, shape).events(text)
    one_by_one = Played(tokenizer, shape).chunks([[event] for event in events])
    at_once = Played(tokenizer, shape).chunks([events])
    choice = Played(tokenizer, shape).whole([events])["choices"][0]
    whole = choice["message"]["content"] if "message" in choice else choice["text"]
    assert joined(one_by_one, 0) == joined(at_once, 0) == whole == text.removesuffix("STOP")


def test_a_chat_begins_with_the_role_and_ends_with_an_empty_delta(tokenizer: Tokenizer) -> None:
    chunks = Played(tokenizer, ChatShape()).chunks([Played(tokenizer, ChatShape()).events("ab", stop_reason=None, reason="length")])
    deltas = [(chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]
    assert deltas == [({"role": "assistant", "content": ""}, None), ({"content": "a"}, None), ({"content": "b"}, None), ({}, "length")]
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {("call", "chat.completion.chunk", "tiny")}
    assert len({chunk["created"] for chunk in chunks}) == 1


def test_an_end_token_is_no_part_of_the_text(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, CompletionShape())
    assert played.whole([played.events("abc", stop_reason=99)])["choices"][0]["text"] == "ab"


def test_without_usage_the_last_finish_carries_the_figures(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, ChatShape(), n=2)
    chunks = played.chunks([played.events("a", 1), played.events("b", 0)])
    assert [bool(chunk.get("timings")) for chunk in chunks] == [False] * 5 + [True]
    assert chunks[-1]["choices"][0]["index"] == 0
    assert chunks[-1]["paceline"] == {"seed": 9}
    assert chunks[-1]["warnings"] == ["`x` was ignored."]
    assert all("usage" not in chunk for chunk in chunks)


def test_with_usage_there_is_one_last_chunk_without_choices(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, ChatShape(), n=2, include_usage=True)
    chunks = played.chunks([played.events("ab", 0), played.events("c", 1)])
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 3, 6)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert chunks[-1]["timings"]["steps"] == 3


def test_logprobs_of_a_chat_are_the_same_streamed_and_whole(tokenizer: Tokenizer) -> None:
    events = Played(tokenizer, ChatShape(), logprobs=1).events("é!")
    chunks = Played(tokenizer, ChatShape(), logprobs=1).chunks([[event] for event in events])
    streamed = [entry for chunk in chunks if (found := chunk["choices"][0]["logprobs"]) for entry in found["content"]]
    whole = Played(tokenizer, ChatShape(), logprobs=1).whole([events])["choices"][0]["logprobs"]["content"]
    assert streamed == whole
    assert [entry["bytes"] for entry in whole] == [[0xC3], [0xA9], [0x21]]
    assert whole[2]["top_logprobs"] == [{"token": "!", "logprob": -1.5, "bytes": [0x21]}]


def test_logprobs_of_a_completion_keep_different_bytes_apart(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, CompletionShape(), logprobs=1)
    logprobs = played.whole([played.events("é!")])["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    assert logprobs["top_logprobs"] == [{"bytes:\\xc3": -1.5}, {"bytes:\\xa9": -1.5}, {"!": -1.5}]
    assert logprobs["text_offset"] == [0, 1, 2]


def test_an_impossible_token_has_a_finite_logprob(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, ChatShape(), logprobs=0)
    end = played.events("", stop_reason=None, reason="length")
    tokens = Tokens("call", 0, [5], [TokenLogprobs(float("-inf"), 7, [], [])])
    assert played.whole([[tokens, *end]])["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


def test_a_failed_sequence_raises_the_engines_message(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, ChatShape())
    failed = played.events("", reason="error", stop_reason=None)[0]
    assert isinstance(failed, Finished)
    with pytest.raises(EngineError, match="The engine failed on this request"):
        played.whole([[failed]])
    assert played.metrics.finished["error"] == 1


def test_the_counters_follow_the_call(tokenizer: Tokenizer) -> None:
    played = Played(tokenizer, ChatShape(), n=2)
    played.whole([played.events("abc", 0), played.events("d", 1)])
    metrics = played.metrics
    assert (metrics.prompt_tokens, metrics.generation_tokens, metrics.finished["stop"]) == (3, 4, 2)
    counts = [sum(one.counts) for one in (metrics.time_to_first_token, metrics.inter_token_latency, metrics.e2e_latency)]
    assert counts == [2, 2, 2]
