"""Engines over one loaded backend, for tests that compare runs: fresh bookkeeping each time, the same weights and memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.backends.base import Backend, PoolShape
from paceline.backends.native.backend import NativeBackend
from paceline.backends.reference import ReferenceBackend
from paceline.config import EngineConfig
from paceline.engine.build import assemble_engine
from paceline.engine.core import Engine
from paceline.engine.door import make_request
from paceline.engine.messages import EngineInfo, EngineStats, Finished, TokenLogprobs, Tokens
from paceline.formats.open import open_checkpoint
from paceline.models.load import load_model
from paceline.sampling.params import SamplingParams

NUM_BLOCKS = 128
MAX_MODEL_LEN = 512
MAX_TOKENS = 512
MAX_ROWS = 8


@dataclass(frozen=True)
class Sizes:
    """What an engine is given besides its backend."""

    max_num_batched_tokens: int = MAX_TOKENS
    max_num_seqs: int = MAX_ROWS
    num_blocks: int = NUM_BLOCKS
    has_prefix_cache: bool = True


@dataclass(frozen=True)
class Said:
    """One sequence's tokens, their log-probabilities, and its end."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    end: Finished


def load_backend(path: Path, kind: str, *, threads: int = 1) -> Backend:
    """A backend with the model at `path`: `reference` or `native`."""
    model, pool = load_model(open_checkpoint(path)), PoolShape(NUM_BLOCKS, MAX_MODEL_LEN // 16)
    if kind == "reference":
        return ReferenceBackend(model, pool, quantized_activations=True)
    return NativeBackend(model, pool, threads=threads, max_tokens=MAX_TOKENS, max_rows=MAX_ROWS)


def new_engine(backend: Backend, sizes: Sizes | None = None) -> Engine:
    """An engine that knows no prefix yet."""
    sizes = sizes or Sizes()
    config = EngineConfig(max_num_seqs=sizes.max_num_seqs, enable_prefix_caching=sizes.has_prefix_cache)
    info = EngineInfo(
        model_name="tiny",
        family="tiny",
        backend=backend.name,
        vocab_size=backend.vocab_size,
        max_model_len=MAX_MODEL_LEN,
        num_blocks=sizes.num_blocks,
        block_size=16,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        threads=1,
        load_s=0.0,
    )
    return assemble_engine(config, backend, info, model_digest="m", token_bytes=lambda token_id, skips: bytes([97 + token_id % 26]))


def run(engine: Engine, prompts: Sequence[list[int]], params: SamplingParams, numbers: Iterator[int] = itertools.count()) -> list[Said]:
    """Run the prompts together to their ends; what the first sequence of each said."""
    ids = [str(next(numbers)) for _ in prompts]
    for request_id, prompt in zip(ids, prompts, strict=True):
        engine.submit(
            make_request(
                request_id=request_id,
                prompt_ids=prompt,
                params=params,
                info=engine.info,
                eos_ids=(),
                now=time.monotonic(),
                draw_seed=lambda: 11,
            )
        )
    tokens: dict[str, list[int]] = {request_id: [] for request_id in ids}
    logprobs: dict[str, list[TokenLogprobs]] = {request_id: [] for request_id in ids}
    ends: dict[str, Finished] = {}
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, Tokens):
                tokens[event.request_id] += event.token_ids
                logprobs[event.request_id] += event.logprobs or ()
            else:
                ends[event.request_id] = event
    return [Said(tokens[request_id], logprobs[request_id], ends[request_id]) for request_id in ids]


def stats_of(engine: Engine) -> EngineStats:
    """The engine's stats, after checking that it gave everything back."""
    stats = engine.stats()
    assert stats.num_blocks_used == 0
    return stats
