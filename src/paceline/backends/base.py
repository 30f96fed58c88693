"""What a backend is: something that owns the KV memory and advances a step.

The one idea: a step's input is a handful of flat int32 arrays rebuilt every step and never kept as state. A backend holds
weights and the block pool's memory; which blocks belong to whom is said anew each step by `block_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F32 = npt.NDArray[np.float32]

BLOCK_SIZE = 16
"""Tokens per KV block (PagedAttention's block; the kernels' layout depends on it)."""


KvDtype = Literal["int16", "int8"]
"""How keys and values are stored: integers with a float32 scale for each token and KV head."""


def kv_head_bytes(dtype: KvDtype, head_dim: int) -> int:
    """Bytes of one KV head of one layer in one block; heads are padded to 16 channels (`kv_head_bytes` in kernels.h)."""
    numbers = 2 * BLOCK_SIZE * -(-head_dim // 16) * 16
    return numbers * (2 if dtype == "int16" else 1) + 2 * BLOCK_SIZE * 4


@dataclass(frozen=True, slots=True)
class Draws:
    """How each logits row picks its token: filters, then argmax of logits/temperature + Gumbel noise; ties take the lowest id.

    Shapes:  every array [R]
    Units:   temperature < 1e-6 means greedy (argmax of the logits, the other fields unused); top_k 0 is off;
             top_p 1 is off; min_p 0 is off; `positions` is the logical position of the token to be picked
    Source:  Philox4x32-10: key = (seed low 32 bits, seed high 32 bits), counter = (token_id // 4, position, seq_index, 0),
             word = token_id % 4; u = (word + 0.5)·2⁻³²; noise = −log(−log(u)). Salmon et al. 2011.
    """

    temperature: F32
    top_k: I32
    top_p: F32
    min_p: F32
    seeds: U64
    seq_indices: I32
    positions: I32


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step's work, flat.

    Shapes:  token_ids, positions [T] · slice_starts [S+1] · context_lens [S] (tokens of the sequence after this step's slice)
             block_tables [groups, S, max_blocks] (block ids in order; unused entries 0, the null block)
             row_indices [R] (indices into T that need logits) · copies [C, 2] (from block, to block: done before anything else)
             draws: R rows, for the picks
    """

    token_ids: I32
    positions: I32
    slice_starts: I32
    context_lens: I32
    block_tables: I32
    row_indices: I32
    draws: Draws
    copies: I32
    needs_logits: bool
    """Whether StepOutput.logits must be filled (some row has a processor or wants logprobs)."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step computed.

    Shapes:  picks [R] i32, drawn from the unprocessed logits by `StepInput.draws` · logits [R, V] f32, or None when not asked for
             (a view valid until the next step)
    """

    picks: I32
    logits: F32 | None


@dataclass(frozen=True, slots=True)
class PoolShape:
    """How much sequence memory a backend must own. num_blocks counts the null block 0."""

    num_blocks: int
    max_blocks_per_seq: int


class Backend(Protocol):
    """Runs steps. Not thread-safe: the engine's one thread owns it."""

    @property
    def name(self) -> str:
        """`reference`, `native`, `null`, `hash` or `scripted`, with what matters after a colon (`native:avx512_vnni`)."""
        ...

    @property
    def numerics(self) -> str:
        """A string that changes whenever the bits of a result may change (target, numerics version, KV type).

        It is part of the prefix cache's root digest.
        """
        ...

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of KV memory that one block takes over all layers."""
        ...

    def forward(self, step: StepInput) -> StepOutput:
        """Advance every slice of the step. Errors: EngineError when the native core fails."""
        ...

    def pick(self, logits: F32, draws: Draws) -> I32:
        """Pick from processed logits with the same arithmetic as `forward`'s picks. Shapes: [R, V] → [R]; −inf is masked out."""
        ...

    def close(self) -> None:
        """Give back threads and memory; idempotent."""
        ...
