"""`paceline bench serve`: drive any OpenAI server with streamed chats and say how it keeps up.

The one idea: a closed loop. `concurrency` clients each send their next request when the last one has ended, so the load is
the same for every server, and the server's own pace decides how long it takes. Prompts differ from their first word, so no
prefix cache helps; `ignore_eos` makes every answer equally long.

Counts come from the server's `usage` where it sends one, else from the deltas.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from paceline.bench.http_stream import Endpoint, read_all, read_events
from paceline.bench.quantiles import quantile
from paceline.bench.report import note
from paceline.errors import EngineError, PacelineError, RequestError

CHAT_PATH = "/v1/chat/completions"
WARM_UP_TOKENS = 8
_NOUNS = (
    "time year people way day man thing woman life child world school state family student group country problem hand part place case "
    "week company system program question work government number night point home water room mother area money story fact month lot "
    "right study book eye job word business issue side kind head house service friend father power hour game line end member law car "
    "city community name president team minute idea kid body information back parent face others level office door health person art"
)
WORDS = _NOUNS.split()
"""What prompts are made of: words that most vocabularies hold as one token."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one benchmark sends. Units: prompt_tokens as the server counts them, as nearly as words allow."""

    endpoint: Endpoint
    model: str
    prompt_tokens: int
    gen_tokens: int
    seed: int = 0


class LoadRow(msgspec.Struct, frozen=True):
    """How one level of concurrency went; latencies over all answers that came whole."""

    concurrency: int
    requests: int
    errors: int
    output_tokens_per_s: float
    requests_per_s: float
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    inter_token_ms_p50: float | None
    inter_token_ms_p99: float | None
    prompt_tokens_mean: float | None
    output_tokens: int
    seconds: float
    first_error: str | None


@dataclass(slots=True)
class Sample:
    """What was seen of one answer. Units: seconds on the monotonic clock."""

    started: float
    moments: list[float] = field(default_factory=list)
    """When each delta with text came."""
    num_tokens: int | None = None
    num_prompt_tokens: int | None = None
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """Tokens as the server counts them, else deltas."""
        return len(self.moments) if self.num_tokens is None else self.num_tokens


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_chunks = msgspec.json.Decoder(_Chunk)


async def served_model(endpoint: Endpoint) -> str:
    """The first model that the server names. Errors: EngineError when there is none."""
    try:
        models = msgspec.json.decode(await read_all(endpoint, "GET", "/v1/models"), type=_Models)
    except msgspec.MsgspecError as error:
        raise EngineError(f"`/v1/models` is not what an OpenAI server answers: {error}.") from error
    if not models.data:
        raise EngineError("The server names no model; say which with `--model`.")
    return models.data[0].id


async def run_load(load: Load, levels: list[int], num_requests: Callable[[int], int]) -> list[LoadRow]:
    """One row per level of concurrency, after a warm-up that also learns how many words make the prompt's tokens.

    Errors:  EngineError when the server refuses the warm-up · RequestError for levels below 1
    """
    if min(levels) < 1:
        raise RequestError(f"`concurrency` is {min(levels)}; expected 1 or more.", param="concurrency")
    num_words = await _words_for_tokens(load)
    rows = []
    for level in levels:
        note(f"{level} at a time, {num_requests(level)} requests …")
        prompts = _prompts(num_words, random.Random(f"{load.seed}/{level}"))
        rows.append(await _run_level(load, level, num_requests(level), prompts))
    return rows


async def _words_for_tokens(load: Load) -> int:
    """How many words make a prompt of about `prompt_tokens`: two samples, then a line through them."""
    short, long = 8, max(16, load.prompt_tokens)
    counts = []
    for num_words in (short, long):
        prompts = _prompts(num_words, random.Random(f"{load.seed}/warm-up"))
        sample = await _ask(load, next(prompts), WARM_UP_TOKENS)
        if sample.error is not None:
            raise EngineError(f"The warm-up request failed. {sample.error}")
        counts.append(sample.num_prompt_tokens)
    if counts[0] is None or counts[1] is None or counts[1] <= counts[0]:
        note("The server sends no usage: a word is taken for a token.")
        return load.prompt_tokens
    tokens_per_word = (counts[1] - counts[0]) / (long - short)
    return max(1, round(short + (load.prompt_tokens - counts[0]) / tokens_per_word))


def _prompts(num_words: int, rng: random.Random) -> Iterator[str]:
    while True:
        yield " ".join(rng.choices(WORDS, k=num_words))


async def _run_level(load: Load, level: int, num_requests: int, prompts: Iterator[str]) -> LoadRow:
    samples: list[Sample] = []
    waiting = iter(range(num_requests))

    async def client() -> None:
        for _ in waiting:
            samples.append(await _ask(load, next(prompts), load.gen_tokens))

    started = time.monotonic()
    await asyncio.gather(*(client() for _ in range(min(level, num_requests))))
    return _row(level, samples, time.monotonic() - started)


async def _ask(load: Load, prompt: str, max_tokens: int) -> Sample:
    """Send one chat and watch its answer; a failure is part of the sample."""
    body = {
        "model": load.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sample = Sample(started=time.monotonic())
    is_whole = False
    try:
        async for data in read_events(load.endpoint, CHAT_PATH, msgspec.json.encode(body)):
            if data == b"[DONE]":
                is_whole = True
            else:
                _note_chunk(sample, _chunks.decode(data), time.monotonic())
    except (PacelineError, msgspec.MsgspecError) as error:
        sample.error = str(error)
    if sample.error is None and not is_whole:
        sample.error = "The answer ended without `[DONE]`."
    if sample.error is None and not sample.moments:
        sample.error = "The answer held no text."
    return sample


def _note_chunk(sample: Sample, chunk: _Chunk, now: float) -> None:
    if chunk.error is not None:
        sample.error = bytes(chunk.error).decode(errors="replace")
    if any(choice.delta.content or choice.delta.reasoning_content for choice in chunk.choices):
        sample.moments.append(now)
    if chunk.usage is not None:
        sample.num_tokens, sample.num_prompt_tokens = chunk.usage.completion_tokens, chunk.usage.prompt_tokens


def _row(level: int, samples: list[Sample], seconds: float) -> LoadRow:
    whole = [sample for sample in samples if sample.error is None]
    errors = [sample.error for sample in samples if sample.error is not None]
    first = [1e3 * (sample.moments[0] - sample.started) for sample in whole]
    gaps = [1e3 * (after - before) for sample in whole for before, after in zip(sample.moments, sample.moments[1:], strict=False)]
    prompts = [sample.num_prompt_tokens for sample in whole if sample.num_prompt_tokens is not None]
    output_tokens = sum(sample.output_tokens for sample in whole)
    return LoadRow(
        concurrency=level,
        requests=len(samples),
        errors=len(errors),
        output_tokens_per_s=output_tokens / seconds,
        requests_per_s=len(whole) / seconds,
        ttft_ms_p50=quantile(first, 0.5),
        ttft_ms_p99=quantile(first, 0.99),
        inter_token_ms_p50=quantile(gaps, 0.5),
        inter_token_ms_p99=quantile(gaps, 0.99),
        prompt_tokens_mean=sum(prompts) / len(prompts) if prompts else None,
        output_tokens=output_tokens,
        seconds=seconds,
        first_error=errors[0] if errors else None,
    )
