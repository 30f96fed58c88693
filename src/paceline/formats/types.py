"""The table of tensor types: how each stores its numbers, and how to get float32 back.

(The formats owner extends this file: block sizes, dequantisation.)
"""

from __future__ import annotations

from enum import Enum


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
