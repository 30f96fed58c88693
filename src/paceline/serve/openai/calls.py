"""One call of an OpenAI-shaped route, from its body to the engine and back: what chats and completions do alike.

The one idea: a route turns its body into prompts, params and an answer's shape; from there on there is one path.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.engine.answer_text import text_stream
from paceline.engine.door import make_request
from paceline.engine.request import Request
from paceline.errors import ContextLengthError, RequestError
from paceline.log import log
from paceline.sampling.params import SamplingParams
from paceline.serve.body import decode_body, read_body
from paceline.serve.generation import Generation
from paceline.serve.openai.chunks import Answer, AnswerChunks, Shape, WholeChoices
from paceline.serve.openai.sampling import terms
from paceline.serve.openai.schema import CommonFields, refuse_unbuilt
from paceline.serve.state import ModelText, ServerState
from paceline.serve.stream import EventStreamAnswer, watch_disconnect
from paceline.serve.timings import server_timing

B = TypeVar("B", bound=CommonFields)
DOOR_FIELDS = {"deadline_s": "paceline.deadline_ms"}
"""Fields of the engine's door that have another name in a body."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """A call whose body has been read, decoded and found to ask only for what is built."""

    state: ServerState
    model: ModelText
    body: B
    model_name: str
    warnings: list[str]
    received: float
    num_bytes: int
    """Of the whole body: no text in it is longer."""


async def open_call(http: HttpRequest, state: ServerState, schema: type[B]) -> Call[B]:
    """Read a call. Errors: UnavailableError, BodyTooLargeError, NotFoundError, RequestError."""
    received = time.monotonic()
    model = state.require_ready()
    data = await read_body(http, state.config.max_body_mib << 20)
    body, warnings = decode_body(data, schema)
    model_name = state.check_model(body.model)
    refuse_unbuilt(body)
    if warnings:
        log("warning", "request.unknown_fields", num=len(warnings), first=warnings[0])
    return Call(state, model, body, model_name, warnings, received, len(data))


def answer_call(call: Call[B], prompts: Sequence[list[int]], params: SamplingParams, shape: Shape, *, prompt_field: str) -> ASGIApp:
    """Submit the prompts and give the response that answers them. Errors: RequestError, CapacityError, EngineError."""
    state, body = call.state, call.body
    answer_id = ("chatcmpl-" if prompt_field == "messages" else "cmpl-") + secrets.token_hex(12)
    requests = _requests(call, answer_id, prompts, params, prompt_field)
    tokenizer = call.model.tokenizer
    generation = Generation(
        state.client.submit(*requests),
        lambda request: text_stream(tokenizer.vocabulary, request.params),
        state.metrics,
        call.received,
    )
    wants_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    answer = Answer(answer_id, call.model_name, shape, tokenizer.token_bytes, call.warnings, wants_usage)
    if body.stream:
        return EventStreamAnswer(generation, AnswerChunks(answer, generation))
    return WholeAnswer(generation, WholeChoices(answer, generation))


def _requests(call: Call[B], answer_id: str, prompts: Sequence[list[int]], params: SamplingParams, prompt_field: str) -> list[Request]:
    asked = terms(call.body)
    try:
        return [
            make_request(
                request_id=answer_id if len(prompts) == 1 else f"{answer_id}-{index}",
                prompt_ids=prompt_ids,
                params=params,
                info=call.state.client.info,
                eos_ids=call.model.tokenizer.eos_ids,
                request_class=asked.request_class,
                priority=asked.priority,
                deadline_s=asked.deadline_s,
                cache_salt=asked.cache_salt,
                now=call.received,
                draw_seed=call.state.draw_seed,
            )
            for index, prompt_ids in enumerate(prompts)
        ]
    except ContextLengthError as error:
        error.param = prompt_field
        raise
    except RequestError as error:
        error.param = prompt_field if error.param == "prompt" else DOOR_FIELDS.get(error.param or "", error.param)
        raise


class WholeAnswer:
    """An ASGI response that waits for the whole generation; a client that leaves ends it."""

    def __init__(self, generation: Generation, choices: WholeChoices) -> None:
        self._generation = generation
        self._choices = choices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Collect, then send one JSON body. Errors: EngineError when a sequence failed."""
        task = asyncio.current_task()
        assert task is not None
        stream = self._generation.stream
        watcher = asyncio.create_task(watch_disconnect(receive, task.cancel))
        try:
            async for pieces in self._generation.batches():
                self._choices.add(pieces)
        except asyncio.CancelledError:
            log("info", "request.dropped", id=stream.requests[0].id)
            if not watcher.done():
                raise
            return
        finally:
            stream.abort()
            watcher.cancel()
        report = self._generation.timings()
        headers = {"server-timing": server_timing(report)} if report is not None else {}
        await Response(self._choices.body(), headers=headers, media_type="application/json")(scope, receive, send)
