"""Our side of a comparison: a process that loads a model once and runs the workloads it is sent, one JSON object a line.

    python -m paceline.bench.compare.ours MODEL [engine flags]

The one idea: the engine is driven as a program would drive it, by requests and steps, and only the decode clock knows when to start:
once every sequence has its first token. `verify` needs steps that the engine does not make by itself, so it goes to the backend.

It answers on the stdout it was started with; whatever else is printed goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from paceline.backends.base import Backend, StepInput
from paceline.bench.compare.child import Reply
from paceline.bench.compare.workloads import Workload
from paceline.bench.perplexity import slice_step
from paceline.cli.flags import add_config_flags, config_from
from paceline.config import EngineConfig
from paceline.engine.build import Parts, build_engine, new_backend, resolve_sizes
from paceline.engine.core import Engine
from paceline.engine.door import make_request
from paceline.engine.messages import Event, Finished
from paceline.errors import EngineError, PacelineError
from paceline.formats.open import open_checkpoint
from paceline.planner.machine import read_machine
from paceline.sampling.params import SamplingParams

WARM_UP = Workload("warm-up", "chats", streams=2, prompt_tokens=32, new_tokens=4)


class Sides:
    """What a model is run by, loaded when first asked for; one at a time, so that memory holds its weights once."""

    def __init__(self, path: Path, config: EngineConfig) -> None:
        self._path, self._config = path, config
        self._engine: Engine | None = None
        self._backend: Backend | None = None

    def engine(self) -> Engine:
        """The engine, warmed up."""
        if self._engine is None:
            self.close()
            self._engine = build_engine(self._config, self._path)
            run_chats(self._engine, WARM_UP, random.Random(0))
        return self._engine

    def backend(self) -> Backend:
        """The backend alone."""
        if self._backend is None:
            self.close()
            parts = Parts(open_checkpoint(self._path), has_weights=True)
            sizes = resolve_sizes(self._config, parts.spec, parts.model, read_machine())
            self._backend = new_backend(self._config, parts, sizes, lambda stage, fraction: None)
        return self._backend

    def close(self) -> None:
        """Let go of whatever is loaded."""
        for side in (self._engine, self._backend):
            if side is not None:
                side.close()
        self._engine = self._backend = None


def run_workload(sides: Sides, workload: Workload, rng: random.Random) -> float:
    """Seconds of one run. Errors: EngineError when it does not go as it should"""
    match workload.kind:
        case "decode":
            return run_decode(sides.engine(), workload, rng)
        case "prefill" | "chats":
            return run_chats(sides.engine(), workload, rng)
        case "verify":
            return run_verify(sides.backend(), workload, rng)
        case "http":
            raise EngineError("`http` is measured on a server.")


def run_chats(engine: Engine, workload: Workload, rng: random.Random) -> float:
    """Seconds until the last of `streams` sequences has all its tokens."""
    started = time.monotonic()
    submit(engine, workload, workload.new_tokens, rng)
    while engine.has_work():
        check_ends(engine.step(), expected="length")
    return time.monotonic() - started


def run_decode(engine: Engine, workload: Workload, rng: random.Random) -> float:
    """Seconds of `new_tokens` steps that each advance every sequence."""
    # A sequence of an early slice goes on while the others' prompts are computed: it must not end before they begin.
    room = engine.info.max_model_len - workload.prompt_tokens
    submit(engine, workload, min(workload.new_tokens + workload.streams * workload.prompt_tokens, room), rng)
    begun: set[str] = set()
    while len(begun) < workload.streams:
        events = engine.step()
        check_ends(events, expected=None)
        begun |= {event.request_id for event in events}
    started = time.monotonic()
    for _ in range(workload.new_tokens):
        check_ends(engine.step(), expected=None)
    seconds = time.monotonic() - started
    engine.abort_all()
    while engine.has_work():
        engine.step()
    return seconds


def run_verify(backend: Backend, workload: Workload, rng: random.Random) -> float:
    """Seconds of `new_tokens` steps of `streams` rows of one sequence, the first at context `prompt_tokens`, each a token further."""
    start, rows = workload.prompt_tokens, workload.streams
    ids = [rng.randrange(backend.vocab_size) for _ in range(start + workload.new_tokens + rows)]
    for begin in range(0, start, rows):
        backend.forward(pick_step(ids, begin, min(begin + rows, start)))
    steps = [pick_step(ids, start + number, start + number + rows) for number in range(workload.new_tokens)]
    started = time.monotonic()
    for step in steps:
        backend.forward(step)
    return time.monotonic() - started


def pick_step(ids: list[int], start: int, end: int) -> StepInput:
    """A step with a row for each token, of which only the picks are wanted."""
    return replace(slice_step(ids, start, end), needs_logits=False)


def submit(engine: Engine, workload: Workload, max_tokens: int, rng: random.Random) -> None:
    """Hand the engine `streams` prompts of random tokens, all different."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    for number in range(workload.streams):
        request = make_request(
            request_id=f"compare-{rng.getrandbits(64):016x}-{number}",
            prompt_ids=[rng.randrange(engine.info.vocab_size) for _ in range(workload.prompt_tokens)],
            params=params,
            info=engine.info,
            eos_ids=(),
            now=time.monotonic(),
            draw_seed=lambda: 0,
        )
        engine.submit(request)


def check_ends(events: list[Event], *, expected: str | None) -> None:
    """Errors: EngineError when a sequence ended otherwise than `expected`"""
    for event in events:
        if isinstance(event, Finished) and event.reason != expected:
            raise EngineError(f"A sequence ended with `{event.reason}` while it was measured. {event.message}".strip())


def answer(requests: Iterator[bytes], replies: BinaryIO, measure: Callable[[Workload], list[float]]) -> None:
    """Say that this side is ready, then answer each workload with its seconds or with what went wrong."""

    def say(reply: Reply) -> None:
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()

    say(Reply())
    for line in requests:
        try:
            say(Reply(measure(msgspec.json.decode(line, type=Workload))))
        except PacelineError as error:
            say(Reply(error=str(error)))


def own_stdout() -> BinaryIO:
    """The stdout this process was started with, now out of reach of whatever else prints."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def main(arguments: list[str]) -> int:
    """Load the model and answer until stdin ends."""
    flags = argparse.ArgumentParser(prog="python -m paceline.bench.compare.ours")
    flags.add_argument("model", type=Path)
    add_config_flags(flags, EngineConfig)
    options = flags.parse_args(arguments)
    sides = Sides(options.model, config_from(options, EngineConfig))
    rng = random.Random()
    replies = own_stdout()
    try:
        answer(iter(sys.stdin.buffer), replies, lambda workload: [run_workload(sides, workload, rng) for _ in range(workload.repeat)])
    finally:
        sides.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
