"""Decode every tensor type to float32, vectorised over blocks.

The one idea: a decoder maps an array of raw blocks [B, block_bytes] to their elements [B, block_size] by array arithmetic,
so all of them share one loop over pieces of a tensor that fit the CPU's caches.

It does not encode, and it is not the fast path: the native core computes on the packed bytes.
The order of float operations is part of the contract (d·q, then + m or − m; sub-scales are multiplied into d first): it is
ggml's, so that values are equal bit for bit to what every other tool decodes.
Source: ggml `ggml-common.h` (block layouts) and `ggml-quants.c` (`dequantize_row_*`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType

Blocks = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

_PIECE_ELEMENTS = 1 << 18
"""Elements decoded at a time: 1 MB of float32, so that the temporaries stay in a core's second-level cache."""


def dequantize(tensor: RawTensor) -> F32:
    """All values of a tensor; what the file says, infinities and NaN of broken scales included.

    Shapes:  tensor.shape, float32, new
    """
    tensor_type = tensor.type
    blocks = tensor.data.reshape(-1, tensor_type.block_bytes)
    values = np.empty((len(blocks), tensor_type.block_size), np.float32)
    decode = _DECODERS[tensor_type]
    piece = max(1, _PIECE_ELEMENTS // tensor_type.block_size)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), piece):
            values[start : start + piece] = decode(blocks[start : start + piece])
    return values.reshape(tensor.shape)


def dequantize_rows(tensor: RawTensor, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> F32:
    """The named rows of a matrix, in the order asked for: an embedding look-up.

    Shapes:  tensor [N, K], rows [R] → [R, K] float32, new
    Errors:  IndexError when a row is outside the tensor
    """
    num_rows, row_elements = tensor.shape
    picked = np.asarray(rows, np.int64)
    if picked.size and (picked.min() < 0 or picked.max() >= num_rows):
        raise IndexError(f"row {picked.min() if picked.min() < 0 else picked.max()} of `{tensor.name}` is not in 0 to {num_rows - 1}")
    data = tensor.data.reshape(num_rows, -1)[picked]
    return dequantize(RawTensor(tensor.name, tensor.type, (len(picked), row_elements), data.reshape(-1)))


def _half(blocks: Blocks, start: int) -> F32:
    """The f16 at byte `start` of every block. Shapes: [B, *] → [B, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Blocks) -> Blocks:
    """Low nibbles of a run of bytes, then its high nibbles. Shapes: [..., n] → [..., 2n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _bit_planes(packed: Blocks, num_planes: int, width: int) -> Blocks:
    """Bits 0…width−1 of every byte, then the next `width` bits, and so on. Shapes: [..., n] → [..., num_planes, n]."""
    shifts = (np.arange(num_planes, dtype=np.uint8) * np.uint8(width))[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << width) - 1)


def _plain(dtype: str) -> Callable[[Blocks], F32]:
    def decode(blocks: Blocks) -> F32:
        return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return decode


def _bf16(blocks: Blocks) -> F32:
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Blocks) -> F32:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Blocks) -> F32:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _five_bits(high: Blocks, low: Blocks) -> F32:
    """5-bit integers. Shapes: high [B, 4], a bit per element; low [B, 16] nibbles → [B, 32]."""
    fifth = np.unpackbits(high, axis=-1, bitorder="little")
    return (_nibbles(low) | (fifth << 4)).astype(np.float32)


def _q5_0(blocks: Blocks) -> F32:
    return _half(blocks, 0) * (_five_bits(blocks[:, 2:6], blocks[:, 6:]) - 16)


def _q5_1(blocks: Blocks) -> F32:
    return _half(blocks, 0) * _five_bits(blocks[:, 4:8], blocks[:, 8:]) + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> F32:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _two_bits(packed: Blocks) -> F32:
    """2-bit integers of a superblock: each 32 bytes hold four runs of 32. Shapes: [B, 64] → [B, 16, 16] (sub-blocks of 16)."""
    return _bit_planes(packed.reshape(-1, 2, 32), 4, 2).reshape(-1, 16, 16).astype(np.float32)


def _q2_k(blocks: Blocks) -> F32:
    scale = _half(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)
    minimum = _half(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    return (scale[..., None] * _two_bits(blocks[:, 16:80]) - minimum[..., None]).reshape(-1, 256)


def _q3_k(blocks: Blocks) -> F32:
    scale = _half(blocks, 108) * (_q3_k_scales(blocks[:, 96:108]).astype(np.float32) - 32)
    # A third bit that is *not* set subtracts 4: the integers run from −4 to 3.
    third = _bit_planes(blocks[:, :32], 8, 1).reshape(-1, 16, 16).astype(np.float32)
    return (scale[..., None] * (_two_bits(blocks[:, 32:96]) + 4 * third - 4)).reshape(-1, 256)


def _q3_k_scales(packed: Blocks) -> Blocks:
    """16 scales of 6 bits: eight bytes of nibbles, then four bytes of upper bit pairs. Shapes: [B, 12] → [B, 16]."""
    upper = _bit_planes(packed[:, 8:], 4, 2).reshape(-1, 16)
    return _nibbles(packed[:, :8]) | (upper << np.uint8(4))


def _k_scales(packed: Blocks) -> tuple[F32, F32]:
    """8 scales and 8 minimums of 6 bits each. Shapes: [B, 12] → two of [B, 8].

    Layout:  bytes 0–3 and 4–7 hold scales and minimums 0–3 in their low six bits; bytes 8–11 hold the low nibbles of
             scales (low) and minimums (high) 4–7, whose upper two bits are the top bits of bytes 0–3 and 4–7
    """
    first, second, nibbles = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (nibbles & 15) | ((first >> 6) << 4)], axis=-1)
    minimums = np.concatenate([second & 63, (nibbles >> 4) | ((second >> 6) << 4)], axis=-1)
    return scales.astype(np.float32), minimums.astype(np.float32)


def _affine_k(blocks: Blocks, integers: F32) -> F32:
    """Superblocks of eight sub-blocks, each with its scale and minimum. Shapes: integers [B, 8, 32] → [B, 256]."""
    scales, minimums = _k_scales(blocks[:, 4:16])
    scale, minimum = _half(blocks, 0) * scales, _half(blocks, 2) * minimums
    return (scale[..., None] * integers - minimum[..., None]).reshape(-1, 256)


def _q4_k(blocks: Blocks) -> F32:
    integers = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _affine_k(blocks, integers.astype(np.float32))


def _q5_k(blocks: Blocks) -> F32:
    fifth = _bit_planes(blocks[:, 16:48], 8, 1)
    integers = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | (fifth << 4)
    return _affine_k(blocks, integers.astype(np.float32))


def _q6_k(blocks: Blocks) -> F32:
    # Each half of a superblock: 64 bytes of nibbles (128 low parts), 32 bytes of bit pairs (four runs of 32 upper parts).
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 16, 16)
    upper = _bit_planes(blocks[:, 128:192].reshape(-1, 2, 32), 4, 2).reshape(-1, 16, 16)
    integers = (low | (upper << 4)).astype(np.float32) - 32
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[..., None] * integers).reshape(-1, 256)


_DECODERS: dict[TensorType, Callable[[Blocks], F32]] = {
    TensorType.F32: _plain("<f4"),
    TensorType.F16: _plain("<f2"),
    TensorType.F64: _plain("<f8"),
    TensorType.BF16: _bf16,
    TensorType.I8: _plain("<i1"),
    TensorType.I16: _plain("<i2"),
    TensorType.I32: _plain("<i4"),
    TensorType.I64: _plain("<i8"),
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q2_K: _q2_k,
    TensorType.Q3_K: _q3_k,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}
