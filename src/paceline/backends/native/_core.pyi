"""The C++ core (native/bindings/module.cpp)."""

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_HEAD_DIM: int
ROW_TILE: int
QUANT_BLOCK: int

class KvType(Enum):
    int16 = 0
    int8 = 1

class Opcode(Enum):
    embed = 0
    angles = 1
    rms_norm = 2
    head_norm = 3
    rope = 4
    kv_write = 5
    attention = 6
    quantize = 7
    linear = 8
    gated_linear = 9
    qkv_linear = 10
    gated = 11
    add = 12
    softcap = 13
    gather_rows = 14

class RowKind(Enum):
    tokens = 0
    logits = 1

class Activation(Enum):
    silu = 0
    gelu_tanh = 1

class Operand:
    def __init__(self, offset: int, stride: int, cols: int) -> None: ...

class Instruction:
    opcode: Opcode
    rows: RowKind
    barrier: bool
    out: Operand
    a: Operand
    b: Operand
    activations: int
    matrix: int
    vector: int
    q_norm: int
    k_norm: int
    kv_offset: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_dim: int
    window: int
    activation: Activation
    scale: float
    eps: float
    softcap: float

class Program:
    instructions: list[Instruction]
    logits: Operand
    arena_bytes: int
    kv_type: KvType
    kv_block_bytes: int
    vocab_size: int
    max_tokens: int
    max_rows: int
    max_head_dim: int

class ThreadPool:
    def __init__(self, num_threads: int) -> None: ...
    @property
    def num_threads(self) -> int: ...

class Weights:
    def __init__(self, total_bytes: int) -> None: ...
    def add_matrix(self, pool: ThreadPool, parts: list[tuple[int, int, int, Array]]) -> int: ...
    def add_vector(self, values: Array) -> int: ...
    def add_frequencies(self, values: Array) -> int: ...

class Draws:
    def __init__(
        self, temperature: Array, top_k: Array, top_p: Array, min_p: Array, seeds: Array, seq_indices: Array, positions: Array
    ) -> None: ...

class Executor:
    def __init__(self, target: str, pool: ThreadPool, weights: Weights, program: Program, num_blocks: int) -> None: ...
    def run(
        self,
        token_ids: Array,
        positions: Array,
        slice_starts: Array,
        context_lens: Array,
        block_tables: Array,
        row_indices: Array,
        copies: Array,
        draws: Draws,
        picks: Array,
    ) -> None: ...
    def pick(self, logits: Array, draws: Draws, picks: Array) -> None: ...
    def logits(self, num_rows: int) -> npt.NDArray[np.float32]: ...
    @property
    def progress(self) -> int: ...
    is_profiling: bool
    @property
    def nanoseconds(self) -> list[int]: ...
    def reset_profile(self) -> None: ...

def kv_head_bytes(type: KvType, head_dim: int) -> int: ...
def packed_type_for(ggml_type: int) -> int: ...
def packed_bytes(ggml_type: int, num_rows: int, num_cols: int) -> int: ...
def activation_bytes(num_tokens: int, num_cols: int) -> int: ...
def targets() -> list[tuple[str, bool, str]]: ...
