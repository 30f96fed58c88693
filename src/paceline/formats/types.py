"""The table of tensor types: how each stores its numbers.

The one idea: a tensor's bytes are a row of equal blocks; a type is fully placed by two integers, the elements of a block
and its bytes. Everything that sizes, bounds or slices a tensor computes from these two.

It does not decode: float32 values come from `paceline.formats.quants`.
Source: ggml `ggml-common.h` (block structs) and the GGUF specification (type numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod


class TensorType(Enum):
    """A tensor's storage type, named as GGUF names it; the value is GGUF's `ggml_type` number."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    BF16 = 30

    @property
    def block_size(self) -> int:
        """Elements of one block; 1 for plain numbers."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return _BLOCKS[self][1]

    @property
    def is_quantised(self) -> bool:
        """Whether several elements share a block with scales."""
        return self.block_size > 1

    def num_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of a tensor of that row-major shape; every row is whole blocks.

        Errors:  ValueError when a row is not a whole number of blocks
        """
        row = shape[-1] if shape else 1
        if row % self.block_size:
            raise ValueError(f"a row of {row} elements is not a whole number of {self.name} blocks of {self.block_size}")
        return prod(shape) // self.block_size * self.block_bytes


_BLOCKS: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 2 + 16),  # f16 d · 32 nibbles
    TensorType.Q4_1: (32, 2 + 2 + 16),  # f16 d, m · 32 nibbles
    TensorType.Q5_0: (32, 2 + 4 + 16),  # f16 d · 32 fifth bits · 32 nibbles
    TensorType.Q5_1: (32, 2 + 2 + 4 + 16),  # f16 d, m · 32 fifth bits · 32 nibbles
    TensorType.Q8_0: (32, 2 + 32),  # f16 d · 32 int8
    TensorType.Q2_K: (256, 16 + 64 + 2 + 2),  # 16 × (4-bit scale, 4-bit min) · 256 × 2 bits · f16 d, dmin
    TensorType.Q3_K: (256, 32 + 64 + 12 + 2),  # 256 third bits · 256 × 2 bits · 16 × 6-bit scale · f16 d
    TensorType.Q4_K: (256, 2 + 2 + 12 + 128),  # f16 d, dmin · 8 × (6-bit scale, 6-bit min) · 256 nibbles
    TensorType.Q5_K: (256, 2 + 2 + 12 + 32 + 128),  # f16 d, dmin · 8 × (6-bit scale, min) · 256 fifth bits · 256 nibbles
    TensorType.Q6_K: (256, 128 + 64 + 16 + 2),  # 256 nibbles · 256 × 2 bits · 16 × int8 scale · f16 d
    TensorType.I8: (1, 1),
    TensorType.I16: (1, 2),
    TensorType.I32: (1, 4),
    TensorType.I64: (1, 8),
    TensorType.F64: (1, 8),
    TensorType.BF16: (1, 2),
}
