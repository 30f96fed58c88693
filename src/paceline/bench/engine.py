"""`paceline bench engine`: how fast the engine computes prompts and new tokens, with no server around it.

The one idea: prompts and new tokens are measured in runs of their own, so neither hides in the other's figure.

    prefill run   `batch` prompts arrive at once and ask for one token each; it ends when the last one has it
    decode run    the same, asking for many tokens; the clock starts when every sequence has its first token and stops
                  `gen_tokens` steps later, so every timed step advances the whole batch

Prompts are random tokens, distinct in every run; the prefix cache is off and end tokens are ignored. A figure is the median over
the repeats.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

import msgspec

from paceline.bench.quantiles import median, quantile
from paceline.bench.report import note
from paceline.engine.core import Engine
from paceline.engine.door import make_request
from paceline.engine.messages import Event, Finished, Tokens
from paceline.errors import EngineError, RequestError
from paceline.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What is measured. Units: tokens; `batches` are numbers of sequences."""

    prompt_tokens: int
    gen_tokens: int
    batches: tuple[int, ...]
    repeat: int

    def __post_init__(self) -> None:
        for name, value in (("prompt_tokens", self.prompt_tokens), ("gen_tokens", self.gen_tokens), ("repeat", self.repeat)):
            if value < 1:
                raise RequestError(f"`{name}` is {value}; expected 1 or more.", param=name)
        if not self.batches or min(self.batches) < 1:
            raise RequestError("`batch` holds a number below 1; expected a list such as `1,8,32`.", param="batch")


class EngineRow(msgspec.Struct, frozen=True):
    """The figures of one batch size. `ttft_ms` is from the prefill run, `step_ms` from the decode run."""

    batch: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    ttft_ms_p50: float
    ttft_ms_p99: float
    step_ms_p50: float
    step_ms_p99: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class _Repeat:
    prefill_s: float
    ttft_s: list[float]
    step_s: list[float]


def run_engine_load(engine: Engine, load: EngineLoad) -> list[EngineRow]:
    """One row per batch size. Errors: ContextLengthError when prompt and new tokens do not fit the context."""
    rng = random.Random(0)
    note("warming up …")
    _measure(engine, EngineLoad(min(load.prompt_tokens, 32), 4, load.batches, 1), load.batches[0], rng)
    rows = []
    for batch in load.batches:
        preemptions_before = engine.stats().num_preemptions
        repeats = []
        for number in range(load.repeat):
            note(f"batch {batch}, run {number + 1} of {load.repeat} …")
            repeats.append(_measure(engine, load, batch, rng))
        rows.append(_row(load, batch, repeats, engine.stats().num_preemptions - preemptions_before))
    return rows


def _measure(engine: Engine, load: EngineLoad, batch: int, rng: random.Random) -> _Repeat:
    prefill_s, ttft_s = _prefill(engine, load, batch, rng)
    return _Repeat(prefill_s, ttft_s, _decode(engine, load, batch, rng))


def _prefill(engine: Engine, load: EngineLoad, batch: int, rng: random.Random) -> tuple[float, list[float]]:
    started = time.monotonic()
    _submit(engine, load, batch, 1, rng)
    ttft_s: list[float] = []
    while engine.has_work():
        events = engine.step()
        ttft_s += [time.monotonic() - started] * sum(isinstance(event, Tokens) for event in events)
        _check_ends(events, expected="length")
    return time.monotonic() - started, ttft_s


def _decode(engine: Engine, load: EngineLoad, batch: int, rng: random.Random) -> list[float]:
    """Seconds of `gen_tokens` steps that each advance the whole batch."""
    num_prompt_steps = math.ceil(batch * load.prompt_tokens / engine.info.max_num_batched_tokens)
    _submit(engine, load, batch, load.gen_tokens + 2 * num_prompt_steps + batch, rng)
    begun: set[str] = set()
    while len(begun) < batch:
        events = engine.step()
        begun |= {event.request_id for event in events}
        _check_ends(events, expected=None)
    step_s = []
    for _ in range(load.gen_tokens):
        started = time.monotonic()
        events = engine.step()
        step_s.append(time.monotonic() - started)
        _check_ends(events, expected=None)
    engine.abort_all()
    while engine.has_work():
        engine.step()
    return step_s


def _submit(engine: Engine, load: EngineLoad, batch: int, max_tokens: int, rng: random.Random) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    for number in range(batch):
        prompt_ids = [rng.randrange(engine.info.vocab_size) for _ in range(load.prompt_tokens)]
        request_id = f"bench-{rng.getrandbits(64):016x}-{number}"
        now = time.monotonic()
        engine.submit(
            make_request(
                request_id=request_id,
                prompt_ids=prompt_ids,
                params=params,
                info=engine.info,
                eos_ids=(),
                now=now,
                draw_seed=lambda: 0,
            )
        )


def _check_ends(events: list[Event], *, expected: str | None) -> None:
    for event in events:
        if isinstance(event, Finished) and event.reason != expected:
            raise EngineError(f"A sequence ended with `{event.reason}` while it was measured. {event.message}".strip())


def _row(load: EngineLoad, batch: int, repeats: list[_Repeat], preemptions: int) -> EngineRow:
    def over_repeats(samples: list[list[float]], fraction: float) -> float:
        return 1e3 * median([quantile(sample, fraction) or 0.0 for sample in samples])

    ttft, steps = [repeat.ttft_s for repeat in repeats], [repeat.step_s for repeat in repeats]
    return EngineRow(
        batch=batch,
        prefill_tokens_per_s=median([batch * load.prompt_tokens / repeat.prefill_s for repeat in repeats]),
        decode_tokens_per_s=median([batch * load.gen_tokens / sum(repeat.step_s) for repeat in repeats]),
        ttft_ms_p50=over_repeats(ttft, 0.5),
        ttft_ms_p99=over_repeats(ttft, 0.99),
        step_ms_p50=over_repeats(steps, 0.5),
        step_ms_p99=over_repeats(steps, 0.99),
        preemptions=preemptions,
    )
