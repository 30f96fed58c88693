"""One random scenario per seed: an engine's sizes, and requests that arrive, are aborted, expire or fail at given steps.

Everything is small (a vocabulary of 97 tokens, pools of a few blocks), so that rare orders of events happen often.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from paceline.engine.request import Request, RequestClass
from paceline.sampling.params import SamplingParams

VOCAB_SIZE = 97
EOS_IDS = (0, 1)
MAX_BLOCKS_PER_SEQ = 8


@dataclass(frozen=True)
class Arrival:
    """A request, the step before which it is submitted, and the step before which it is aborted."""

    request: Request
    arrives: int
    aborts: int | None


@dataclass(frozen=True)
class Scenario:
    """An engine and what happens to it."""

    seed: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting: int
    has_prefix_cache: bool
    draft_length: int
    """Most drafted tokens per sequence and step."""
    failing_steps: frozenset[int]
    arrivals: tuple[Arrival, ...]


def token_text(token_id: int) -> bytes:
    """A token's bytes: one of 13 letters, so that stop strings happen; end tokens show nothing."""
    return b"" if token_id in EOS_IDS else bytes([97 + token_id % 13])


def make_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = Random(seed)
    num_blocks = rng.choice([5, 6, 7, 8, 10, 14, 24, 40])
    capacity = min(num_blocks - 1, MAX_BLOCKS_PER_SEQ) * 16
    prefixes = [_tokens(rng, rng.choice([0, 5, 15, 16, 17, 31, 32, 33, 48])) for _ in range(rng.randint(1, 3))]
    arrivals = tuple(_arrival(rng, f"r{number}", prefixes, capacity) for number in range(rng.randint(2, 8)))
    return Scenario(
        seed=seed,
        num_blocks=num_blocks,
        max_num_seqs=rng.choice([1, 2, 3, 4, 8]),
        max_num_batched_tokens=rng.choice([1, 3, 7, 16, 20, 40, 64, 512]),
        max_waiting=rng.choice([4, 20, 20, 20]),
        has_prefix_cache=rng.random() < 0.85,
        draft_length=rng.choice([0, 0, 1, 3, 6]),
        failing_steps=frozenset([rng.randint(0, 30)] if rng.random() < 0.1 else []),
        arrivals=arrivals,
    )


def _arrival(rng: Random, request_id: str, prefixes: list[list[int]], capacity: int) -> Arrival:
    arrives = rng.choice([0, 0, rng.randint(0, 8), rng.randint(0, 30)])
    prompt = (rng.choice(prefixes) + _tokens(rng, rng.choice([0, 1, 1, 4, 15, 16, 20])))[: capacity - 1] or _tokens(rng, 1)
    max_tokens = rng.randint(1, min(24, capacity - len(prompt)))
    request_class: RequestClass = "batch" if rng.random() < 0.15 else "interactive"
    request = Request(
        id=request_id,
        prompt_ids=prompt,
        params=(params := _params(rng, max_tokens)),
        stop_bytes=tuple(stop.encode() for stop in params.stop),
        eos_ids=EOS_IDS,
        request_class=request_class,
        priority=rng.choice([0, 0, 0, -1, 1]),
        deadline_s=float(rng.randint(1, 40)) if rng.random() < 0.15 else None,
        cache_salt=rng.choice(["", "", "", "other"]),
        arrived=float(arrives),
    )
    return Arrival(request, arrives, arrives + rng.randint(0, 25) if rng.random() < 0.2 else None)


def _params(rng: Random, max_tokens: int) -> SamplingParams:
    is_processed = rng.random() < 0.15
    return SamplingParams(
        n=rng.choice([1, 1, 1, 1, 2, 3]),
        temperature=rng.choice([0.0, 1.0]),
        seed=rng.choice([-1, 7, rng.getrandbits(63)]),
        max_tokens=max_tokens,
        min_tokens=rng.randint(0, max_tokens) if rng.random() < 0.2 else 0,
        stop=tuple("".join(rng.choices("abcdefghijklm", k=rng.randint(1, 2))) for _ in range(rng.choice([0, 0, 0, 1, 2]))),
        stop_token_ids=(rng.randrange(2, VOCAB_SIZE),) if rng.random() < 0.2 else (),
        ignore_eos=rng.random() < 0.3,
        logit_bias={rng.randrange(VOCAB_SIZE): rng.choice([-100.0, 4.0])} if is_processed else {},
        repetition_penalty=rng.choice([1.0, 1.3]) if is_processed else 1.0,
        frequency_penalty=rng.choice([0.0, 0.7]) if is_processed else 0.0,
        presence_penalty=rng.choice([0.0, 1.1]) if is_processed else 0.0,
        logprobs=rng.choice([0, 3]) if rng.random() < 0.1 else None,
    )


def _tokens(rng: Random, count: int) -> list[int]:
    return [rng.randrange(VOCAB_SIZE) for _ in range(count)]
