"""The composition root: config and a model's path → an engine. The only place that names concrete backends and policies.

The one idea: everything that was left to `auto` is resolved here, once, by the planner, and `EngineInfo.notes` says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.backends.base import BLOCK_SIZE, Backend, KvDtype, PoolShape
from paceline.cache.block_pool import BlockPool
from paceline.cache.block_table import num_blocks_for
from paceline.cache.eviction import EvictionPolicy, FirstInFirstOut, LeastRecentlyUsed
from paceline.cache.prefix_cache import PrefixCache
from paceline.cache.value import ValuePolicy
from paceline.config import EngineConfig
from paceline.engine.core import Engine
from paceline.engine.endings import TokenBytes
from paceline.engine.messages import EngineInfo
from paceline.engine.policy import PriorityOrder
from paceline.engine.scheduler import Scheduler, SchedulerConfig
from paceline.errors import RequestError
from paceline.formats.checkpoint import Checkpoint
from paceline.formats.open import open_checkpoint
from paceline.models.load import Model, load_model, read_spec
from paceline.models.spec import ModelSpec
from paceline.planner.machine import Machine, cpu_name, read_machine
from paceline.planner.memory import MemoryNeeds, arena_bytes, kv_bytes_per_block, plan_memory, weights_bytes
from paceline.planner.time_store import KeptTimeModel, time_model_path
from paceline.text.tokenizer import load_vocabulary

ProgressReport = Callable[[str, float], None]
"""Told what is being loaded, and how far (0 to 1)."""

DEFAULT_BUDGET = 256
"""Token budget of a step when left to `auto`: enough to fill the matrix kernels, short enough for decodes to wait on."""


class Parts:
    """What a checkpoint gives an engine; the vocabulary is read when first needed, so an engine without stop strings starts faster."""

    def __init__(self, checkpoint: Checkpoint, *, has_weights: bool) -> None:
        self.model = load_model(checkpoint) if has_weights else None
        self.spec = self.model.spec if self.model else read_spec(checkpoint)
        self.digest = self.model.digest if self.model else checkpoint.digest()
        self.vocabulary = cache(lambda: load_vocabulary(checkpoint))

    def visible_bytes(self, token_id: int, skip_special_tokens: bool) -> bytes:
        """The bytes of a token that a client gets to see."""
        return self.vocabulary().visible_bytes(token_id, skip_special_tokens=skip_special_tokens)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Every size of an engine, resolved; `notes` say why where `auto` decided."""

    threads: int
    kv_dtype: KvDtype
    num_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    notes: tuple[str, ...]

    @property
    def pool(self) -> PoolShape:
        """The pool that a backend must own."""
        return PoolShape(self.num_blocks, num_blocks_for(self.max_model_len))


def build_engine(config: EngineConfig, model_path: Path, progress: ProgressReport = lambda stage, fraction: None) -> Engine:
    """Load a model and make an engine of it.

    Errors:  NotFoundError, ModelError for the model · RequestError for the config · EngineError when the native core cannot start
    """
    started = time.monotonic()
    progress("reading the model", 0.0)
    parts = Parts(open_checkpoint(model_path), has_weights=config.backend in ("native", "reference"))
    sizes = resolve_sizes(config, parts.spec, parts.model, read_machine())
    backend = new_backend(config, parts, sizes, progress)
    info = EngineInfo(
        model_name=model_path.stem,
        family=parts.spec.family,
        backend=backend.name,
        vocab_size=backend.vocab_size,
        max_model_len=sizes.max_model_len,
        num_blocks=sizes.num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        threads=sizes.threads,
        load_s=time.monotonic() - started,
        notes=list(sizes.notes),
    )
    engine = assemble_engine(config, backend, info, model_digest=parts.digest, token_bytes=parts.visible_bytes)
    if config.backend == "native":  # the others only pretend to take time
        engine.remember(KeptTimeModel(time_model_path(parts.digest, backend.numerics, sizes.threads, cpu_name(Path("/")))))
    return engine


def assemble_engine(config: EngineConfig, backend: Backend, info: EngineInfo, *, model_digest: str, token_bytes: TokenBytes) -> Engine:
    """An engine of a loaded backend whose sizes are in `info`."""
    pool = BlockPool(info.num_blocks, new_eviction_policy(config.eviction_policy, info.num_blocks))
    scheduler = Scheduler(
        SchedulerConfig(config.max_num_seqs, info.max_num_batched_tokens, config.max_waiting),
        pool,
        PrefixCache(pool) if config.enable_prefix_caching else None,
        PriorityOrder(),
    )
    return Engine(backend, scheduler, info, model_digest=model_digest, token_bytes=token_bytes, clock=time.monotonic)


def new_eviction_policy(name: str, num_blocks: int) -> EvictionPolicy:
    """The policy of that name for a pool of that size."""
    match name:
        case "lru":
            return LeastRecentlyUsed()
        case "fifo":
            return FirstInFirstOut()
    return ValuePolicy(num_blocks)


def resolve_sizes(config: EngineConfig, spec: ModelSpec, model: Model | None, machine: Machine) -> Sizes:
    """Resolve every `auto` of the config. Errors: ModelError with the sums when the model does not fit."""
    notes: list[str] = []
    threads = config.threads or machine.num_cores
    if config.threads is None:
        notes.append(f"threads={threads}: the physical cores that this process may use")
    kv_dtype = kv_dtype_of(config)
    if config.kv_cache_dtype == "auto":
        notes.append(f"kv_cache_dtype={kv_dtype}: as close to float32 as the weights' own rounding lets one see")
    budget = config.max_num_batched_tokens or max(DEFAULT_BUDGET, 2 * config.max_num_seqs)
    if config.max_num_batched_tokens is None:
        notes.append(f"max_num_batched_tokens={budget}: {DEFAULT_BUDGET}, or two tokens for each of max_num_seqs")
    needs = MemoryNeeds(
        weights_bytes=weights_bytes(model.weights) if model else 0,
        arena_bytes=arena_bytes(spec, budget, config.max_num_seqs) if model else 0,
        block_bytes=kv_bytes_per_block(spec, kv_dtype) if model else 0,
    )
    plan = plan_memory(
        needs,
        spec,
        budget_bytes=int(config.memory_utilization * machine.memory_bytes),
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        num_blocks=config.num_blocks,
    )
    return Sizes(threads, kv_dtype, plan.num_blocks, plan.max_model_len, budget, (*notes, *plan.notes))


def kv_dtype_of(config: EngineConfig) -> KvDtype:
    """The type of keys and values that a config names or leaves to `auto`."""
    return "int8" if config.kv_cache_dtype == "int8" else "int16"


def new_backend(config: EngineConfig, parts: Parts, sizes: Sizes, progress: ProgressReport) -> Backend:
    """The backend that the config names; its module is imported only when it is the one."""
    model = parts.model
    if config.backend == "native":
        from paceline.backends.native.backend import NativeBackend

        assert model is not None, "the native backend runs a loaded model"
        return NativeBackend(
            model,
            sizes.pool,
            threads=sizes.threads,
            target=config.target,
            kv_dtype=sizes.kv_dtype,
            max_tokens=sizes.max_num_batched_tokens,
            max_rows=config.max_num_seqs,
            progress=lambda fraction: progress("preparing the weights", fraction),
        )
    if config.backend == "reference":
        from paceline.backends.reference import ReferenceBackend

        assert model is not None, "the reference backend runs a loaded model"
        return ReferenceBackend(model, sizes.pool, quantized_activations=True, kv_dtype=sizes.kv_dtype)
    return _simulated_backend(config, parts, sizes)


def _simulated_backend(config: EngineConfig, parts: Parts, sizes: Sizes) -> Backend:
    from paceline.backends.null import NullBackend
    from paceline.backends.simulated import HashBackend, ScriptedBackend, load_scripts

    vocab_size = parts.spec.vocab_size
    if config.backend == "null":
        return NullBackend(vocab_size)
    if config.backend == "hash":
        return HashBackend(vocab_size, sizes.pool)
    if config.script is None:
        raise RequestError("`backend` is `scripted`; expected `script` to name a file of token lists.", param="script")
    return ScriptedBackend(vocab_size, sizes.pool, load_scripts(Path(config.script)), parts.vocabulary().eos_ids[0])
