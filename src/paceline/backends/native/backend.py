"""The native backend: a model's program on the C++ core.

The one idea: everything is decided when the backend is made (record, place, pack, lower); a step is one call into C++ with
the step's arrays, during which Python's lock is free. KV memory is one mapping that the core owns and commits lazily.

It keeps no state between steps but the KV cache, and it knows nothing of requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.backends.base import BLOCK_SIZE, F32, I32, Draws, KvDtype, PoolShape, StepInput, StepOutput
from paceline.backends.native import _core
from paceline.backends.native.arena import place
from paceline.backends.native.lowering import lower, pack_weights
from paceline.backends.native.program import Program
from paceline.backends.native.recorder import record
from paceline.backends.native.targets import choose_target
from paceline.errors import EngineError
from paceline.models.load import Model

NUMERICS_VERSION = 2
"""Raise it with every change that may change a bit of a result."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time that one instruction (or `pick`) took since profiling began."""

    text: str
    nanoseconds: int


class NativeBackend:
    """Runs a model's steps on the CPU. Not thread-safe: the engine's one thread owns it."""

    def __init__(
        self,
        model: Model,
        pool: PoolShape,
        *,
        threads: int | None = None,
        target: str | None = None,
        kv_dtype: KvDtype = "int16",
        max_tokens: int,
        max_rows: int,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load the model: pack its weights, place its program, map the KV pool.

        Errors:  RequestError for a target that cannot run here · EngineError when memory or threads are refused
        """
        self._target = choose_target(target).name
        self._kv_dtype = kv_dtype
        self._vocab_size = model.spec.vocab_size
        self._max_rows = max_rows
        self.program: Program = record(model.spec, model.weights, kv_dtype)
        arena = place(self.program, max_tokens, max_rows)
        self.program_text = self.program.render(arena.barriers)
        try:
            threads_pool = _core.ThreadPool(threads or len(os.sched_getaffinity(0)))
            table = pack_weights(self.program, threads_pool, progress)
            lowered = lower(self.program, arena, table, vocab_size=self._vocab_size, max_tokens=max_tokens, max_rows=max_rows)
            executor = _core.Executor(self._target, threads_pool, table.weights, lowered, pool.num_blocks)
        except (MemoryError, RuntimeError, ValueError) as error:
            raise EngineError(f"The native core cannot start: {error}.") from error
        self._executor: _core.Executor | None = executor
        self._max_context = pool.max_blocks_per_seq * BLOCK_SIZE

    @property
    def name(self) -> str:
        """`native:` and the target."""
        return f"native:{self._target}"

    @property
    def numerics(self) -> str:
        """Changes whenever the bits of a result may."""
        return native_numerics(self._target, self._kv_dtype)

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of KV memory that one block takes over all layers."""
        return self.program.kv_block_bytes

    @property
    def progress(self) -> int:
        """Instructions begun since the start: still moving means not hung."""
        return self._core.progress

    @property
    def _core(self) -> _core.Executor:
        if self._executor is None:
            raise EngineError("The native backend is closed.")
        return self._executor

    def forward(self, step: StepInput) -> StepOutput:
        """Advance every slice of the step. Errors: EngineError for a step that does not fit the model or the pool"""
        executor = self._core
        num_rows = len(step.row_indices)
        picks = np.empty(num_rows, np.int32)
        if step.block_tables.shape[0] != 1:
            raise EngineError(f"The step has {step.block_tables.shape[0]} groups of block tables; expected 1.")
        if len(step.context_lens) and int(step.context_lens.max()) > self._max_context:
            raise EngineError(f"A sequence has {int(step.context_lens.max())} tokens; expected at most {self._max_context}.")
        try:
            executor.run(
                step.token_ids,
                step.positions,
                step.slice_starts,
                step.context_lens,
                step.block_tables[0],
                step.row_indices,
                step.copies,
                native_draws(step.draws),
                picks,
            )
        except (ValueError, TypeError) as error:
            raise EngineError(f"The step is malformed: {error}.") from error
        return StepOutput(picks, executor.logits(num_rows) if step.needs_logits else None)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """Pick from processed logits with the arithmetic of `forward`. Errors: EngineError for shapes that do not fit"""
        picks = np.empty(len(logits), np.int32)
        try:
            for start in range(0, len(logits), self._max_rows):
                rows = slice(start, start + self._max_rows)
                self._core.pick(np.ascontiguousarray(logits[rows], np.float32), native_draws(draws, rows), picks[rows])
        except (ValueError, TypeError) as error:
            raise EngineError(f"The logits cannot be picked from: {error}.") from error
        return picks

    def start_profile(self) -> None:
        """Count the time of every instruction from now on (two clock readings each, worker 0 only)."""
        self._core.reset_profile()
        self._core.is_profiling = True

    def profile(self) -> tuple[ProfileRow, ...]:
        """The time of each instruction, its barrier included, then of picking; all zero unless `start_profile` was called."""
        texts = [str(instruction) for instruction in self.program.instructions] + ["pick"]
        return tuple(ProfileRow(text, spent) for text, spent in zip(texts, self._core.nanoseconds, strict=True))

    def close(self) -> None:
        """Give back threads and memory; idempotent. Views of logits keep their memory until they are gone."""
        self._executor = None


def native_numerics(target: str, kv_dtype: KvDtype) -> str:
    """What the bits of a result on this target depend on (see `Backend.numerics`)."""
    return f"native:{target}:v{NUMERICS_VERSION}:kv-{kv_dtype}"


def native_draws(draws: Draws, rows: slice = slice(None)) -> _core.Draws:
    """The draws of some rows, lent to the core."""
    return _core.Draws(
        draws.temperature[rows],
        draws.top_k[rows],
        draws.top_p[rows],
        draws.min_p[rows],
        draws.seeds[rows],
        draws.seq_indices[rows],
        draws.positions[rows],
    )
