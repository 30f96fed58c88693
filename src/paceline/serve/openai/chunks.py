"""The shapes of OpenAI's answers, streamed and whole, for chats and for completions.

The one idea: a *shape* holds the few places where chats and completions differ; everything else is written once. A chunk is
a prefix and a suffix made once per choice around one JSON string.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from paceline.engine.messages import Finished, TokenLogprobs
from paceline.serve.generation import Generation, Piece, Usage, seeds
from paceline.serve.openai.logprobs import Spell, chat_entries, completion_entries
from paceline.serve.stream import event

_encode = msgspec.json.Encoder().encode


class Shape(Protocol):
    """Where chats and completions differ."""

    object: str
    chunk_object: str
    role: bytes | None
    """The delta that opens a choice, or None when there is none."""
    text: tuple[bytes, bytes]
    """What stands before and after a chunk's text."""
    ending: bytes
    """What stands in a choice's last chunk instead of text."""

    def logprobs(self, token_ids: Sequence[int], found: Sequence[TokenLogprobs], spell: Spell, offset: int) -> dict[str, Any]:
        """The `logprobs` object of some tokens; `offset` is the length of the choice's text before them."""
        ...

    def choice(self, text: str) -> dict[str, Any]:
        """The part of a whole choice that holds its text."""
        ...


class ChatShape:
    """`chat.completion`: messages and deltas."""

    object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    role: bytes | None = b'"delta":{"role":"assistant","content":""}'
    text = (b'"delta":{"content":', b"}")
    ending = b'"delta":{}'

    def logprobs(self, token_ids: Sequence[int], found: Sequence[TokenLogprobs], spell: Spell, offset: int) -> dict[str, Any]:
        """`{"content": [{token, logprob, bytes, top_logprobs}]}`."""
        return {"content": chat_entries(token_ids, found, spell), "refusal": None}

    def choice(self, text: str) -> dict[str, Any]:
        """The assistant's message."""
        return {"message": {"role": "assistant", "content": text, "refusal": None}}


class CompletionShape:
    """`text_completion`: plain text."""

    object = "text_completion"
    chunk_object = "text_completion"
    role: bytes | None = None
    text = (b'"text":', b"")
    ending = b'"text":""'

    def logprobs(self, token_ids: Sequence[int], found: Sequence[TokenLogprobs], spell: Spell, offset: int) -> dict[str, Any]:
        """`{tokens, token_logprobs, top_logprobs, text_offset}`."""
        return completion_entries(token_ids, found, spell, offset)

    def choice(self, text: str) -> dict[str, Any]:
        """The text."""
        return {"text": text}


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an answer before its first token."""

    id: str
    model: str
    shape: Shape
    spell: Spell
    warnings: list[str]
    include_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))


def usage_json(usage: Usage) -> dict[str, Any]:
    """The `usage` object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    }


def extras_json(answer: Answer, generation: Generation) -> dict[str, Any]:
    """What we add to an answer's end: `timings`, the seeds under `paceline`, and `warnings` when there are any."""
    drawn = seeds(generation.stream.requests)
    extras: dict[str, Any] = {"timings": generation.timings(), "paceline": {"seed": drawn[0] if len(drawn) == 1 else drawn}}
    return extras | ({"warnings": answer.warnings} if answer.warnings else {})


class AnswerChunks:
    """Writes an answer as chunks."""

    def __init__(self, answer: Answer, generation: Generation) -> None:
        self._answer = answer
        self._generation = generation
        head = {"id": answer.id, "object": answer.shape.chunk_object, "created": answer.created, "model": answer.model}
        self._head = _encode(head)[:-1]
        self._tail = b',"usage":null}' if answer.include_usage else b"}"
        start, end = answer.shape.text
        choice = b"data: " + self._head + b',"choices":[{"index":%d,'
        self._opening = [choice % index for index in range(generation.num_choices)]
        self._before = [opening + start for opening in self._opening]
        self._after = end + b',"logprobs":null,"finish_reason":null}]' + self._tail + b"\n\n"
        self._is_open = [False] * generation.num_choices
        self._lengths = [0] * generation.num_choices
        self._num_finished = 0

    def chunks(self, pieces: Iterable[Piece]) -> bytes:
        """The events of a batch of pieces; a piece with neither text nor logprobs nor an end has none."""
        return b"".join([self._chunk(piece) for piece in pieces])

    def _chunk(self, piece: Piece) -> bytes:
        index = piece.choice
        data = b""
        if not self._is_open[index]:
            self._is_open[index] = True
            if self._answer.shape.role is not None:
                data = self._opening[index] + self._answer.shape.role + self._after[len(self._answer.shape.text[1]) :]
        if piece.logprobs:
            data += self._chunk_with_logprobs(piece, piece.logprobs)
        elif piece.text:
            data += self._before[index] + _encode(piece.text) + self._after
        self._lengths[index] += len(piece.text)
        return data + self._finish_chunk(index, piece.finished) if piece.finished is not None else data

    def _chunk_with_logprobs(self, piece: Piece, found: list[TokenLogprobs]) -> bytes:
        answer, index = self._answer, piece.choice
        logprobs = answer.shape.logprobs(piece.token_ids, found, answer.spell, self._lengths[index])
        text_end = answer.shape.text[1]
        body = self._before[index] + _encode(piece.text) + text_end + b',"logprobs":' + _encode(logprobs)
        return body + b',"finish_reason":null}]' + self._tail + b"\n\n"

    def _finish_chunk(self, index: int, finished: Finished) -> bytes:
        self._num_finished += 1
        end = {"finish_reason": finished.reason, "stop_reason": finished.stop_reason}
        tail = self._tail
        if self._num_finished == self._generation.num_choices and not self._answer.include_usage:
            tail = b"," + _encode(extras_json(self._answer, self._generation))[1:]
        choice = self._answer.shape.ending + b',"logprobs":null,' + _encode(end)[1:-1]
        return self._opening[index] + choice + b"}]" + tail + b"\n\n"

    def closing(self) -> bytes:
        """The usage chunk, when it was asked for."""
        if not self._answer.include_usage:
            return b""
        usage = usage_json(self._generation.usage())
        last = {"choices": [], "usage": usage, **extras_json(self._answer, self._generation)}
        return event(self._head + b"," + _encode(last)[1:])


class WholeChoices:
    """Collects pieces into whole choices, and writes them as one body."""

    def __init__(self, answer: Answer, generation: Generation) -> None:
        self._answer = answer
        self._generation = generation
        self._texts: list[list[str]] = [[] for _ in range(generation.num_choices)]
        self._token_ids: list[list[int]] = [[] for _ in range(generation.num_choices)]
        self._logprobs: list[list[TokenLogprobs]] = [[] for _ in range(generation.num_choices)]
        self._finished: dict[int, Finished] = {}

    def add(self, pieces: Iterable[Piece]) -> None:
        """Take a batch of pieces."""
        for piece in pieces:
            self._texts[piece.choice].append(piece.text)
            if piece.logprobs is not None:
                self._token_ids[piece.choice] += piece.token_ids
                self._logprobs[piece.choice] += piece.logprobs
            if piece.finished is not None:
                self._finished[piece.choice] = piece.finished

    def body(self) -> bytes:
        """The JSON of the whole answer."""
        answer = self._answer
        whole = {
            "id": answer.id,
            "object": answer.shape.object,
            "created": answer.created,
            "model": answer.model,
            "choices": [self._choice(index) for index in range(len(self._texts))],
            "usage": usage_json(self._generation.usage()),
        }
        return _encode(whole | extras_json(answer, self._generation))

    def _choice(self, index: int) -> dict[str, Any]:
        shape, finished = self._answer.shape, self._finished[index]
        wants_logprobs = any(request.params.logprobs is not None for request in self._generation.stream.requests)
        logprobs = shape.logprobs(self._token_ids[index], self._logprobs[index], self._answer.spell, 0) if wants_logprobs else None
        return {
            "index": index,
            **shape.choice("".join(self._texts[index])),
            "logprobs": logprobs,
            "finish_reason": finished.reason,
            "stop_reason": finished.stop_reason,
        }
