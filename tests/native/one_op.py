"""A few ops at a time: the same Python function run by the native core and by the NumPy reference.

The one idea: `Ops` is the contract, so a test is a function of `Ops`. Arbitrary float inputs enter as an f32 embedding table
whose row t belongs to token t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.backends.base import F32, KvDtype, StepInput
from paceline.backends.native import _core
from paceline.backends.native.arena import place
from paceline.backends.native.backend import native_draws
from paceline.backends.native.lowering import lower, pack_weights
from paceline.backends.native.recorder import Recorder
from paceline.backends.native.targets import explain_targets
from paceline.backends.reference_kv import IntegerCache
from paceline.backends.reference_ops import ReferenceOps
from paceline.backends.reference_weights import LinearWeights
from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType
from paceline.models.ops import Matrix

TARGETS = [target.name for target in explain_targets() if target.is_available]
NUM_BLOCKS = 80


class OpsFunction(Protocol):
    """What a test computes: [T, …] arrays from the inputs' rows."""

    def __call__(self, ops: Any, x: Any) -> Any: ...


def float_matrix(values: npt.NDArray[np.floating], name: str = "x") -> Matrix:
    """A matrix of float32 rows."""
    data = np.ascontiguousarray(values, np.float32)
    return Matrix(name, (RawTensor(name, TensorType.F32, data.shape, data.reshape(-1).view(np.uint8)),))


@dataclass(frozen=True)
class OneOp:
    """A function and the rows it works on: row t is what token id t embeds to. Shapes: rows [V, K]"""

    function: OpsFunction
    rows: npt.NDArray[np.floating]
    kv_dtype: KvDtype = "int16"

    def forward(self, ops: Any, table: Matrix) -> Any:
        """The function's result at the step's rows."""
        return ops.gather_rows(self.function(ops, ops.embed(table, ops.token_ids, 1.0)), ops.row_indices)

    def native(self, step: StepInput, target: str, threads: int = 2) -> F32:
        """The result on one target. Shapes: → [R, N]"""
        recorder = Recorder(self.kv_dtype)
        program = recorder.finish(self.forward(recorder, float_matrix(self.rows)))
        count = len(step.token_ids)
        arena = place(program, count, count)
        pool = _core.ThreadPool(threads)
        table = pack_weights(program, pool, None)
        lowered = lower(program, arena, table, vocab_size=len(self.rows), max_tokens=count, max_rows=count)
        executor = _core.Executor(target, pool, table.weights, lowered, NUM_BLOCKS)
        inputs = (step.token_ids, step.positions, step.slice_starts, step.context_lens, step.block_tables[0])
        picks = np.empty(len(step.row_indices), np.int32)
        executor.run(*inputs, step.row_indices, step.copies, native_draws(step.draws), picks)
        return executor.logits(len(step.row_indices)).copy()

    def reference(self, step: StepInput, num_kv_heads: int = 1, head_dim: int = 1, *, quantizes: bool = True) -> npt.NDArray[np.float64]:
        """The same in float64, rounding where the core rounds. Shapes: → [R, N]"""
        cache = IntegerCache.empty(self.kv_dtype, NUM_BLOCKS, num_kv_heads, head_dim)
        ops = ReferenceOps(step, LinearWeights(quantizes_activations=quantizes), (cache,))
        found: npt.NDArray[np.float64] = self.forward(ops, float_matrix(self.rows))
        return found


def normal_rows(num_rows: int, num_cols: int, seed: int = 0, spread: float = 1.0) -> npt.NDArray[np.float64]:
    """Rows of normal numbers, float32 values in float64."""
    return np.random.default_rng(seed).normal(0.0, spread, (num_rows, num_cols)).astype(np.float32).astype(np.float64)
