"""Random valid blocks of every tensor type, from a seed.

The one idea: quantised fields may hold any bits; only the floats among them (scales, minimums, plain numbers) must be
finite, so bytes are drawn at random and the floats are then put in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.formats.checkpoint import RawTensor
from paceline.formats.types import TensorType

HALF_FIELDS: dict[TensorType, tuple[int, ...]] = {
    TensorType.Q4_0: (0,),
    TensorType.Q4_1: (0, 2),
    TensorType.Q5_0: (0,),
    TensorType.Q5_1: (0, 2),
    TensorType.Q8_0: (0,),
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
}
"""Byte offsets of the f16 fields of a quantised block."""

QUANTISED_TYPES = tuple(HALF_FIELDS)
FLOAT_TYPES = (TensorType.F32, TensorType.F16, TensorType.BF16)


def random_tensor(
    tensor_type: TensorType, shape: tuple[int, ...], rng: np.random.Generator, *, scale: float = 0.01, name: str = "tensor"
) -> RawTensor:
    """A tensor of random values of about `scale` times the range of its integers (plain floats: normal with deviation `scale`).

    Shapes:  shape is row-major, as in RawTensor
    Errors:  ValueError when a row is not a whole number of blocks
    """
    num_bytes = tensor_type.num_bytes(shape)
    if tensor_type in HALF_FIELDS:
        return RawTensor(name, tensor_type, shape, _quantised(tensor_type, num_bytes, rng, scale))
    values = rng.normal(0.0, scale, num_bytes // tensor_type.block_bytes)
    return RawTensor(name, tensor_type, shape, plain_bytes(tensor_type, values))


def plain_bytes(tensor_type: TensorType, values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Numbers in the bytes of a float type (bf16 by cutting off the low half)."""
    array = np.ascontiguousarray(values, np.float32).reshape(-1)
    if tensor_type is TensorType.BF16:
        return (array.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    dtype = {TensorType.F32: "<f4", TensorType.F16: "<f2", TensorType.F64: "<f8"}[tensor_type]
    return array.astype(dtype).view(np.uint8)


def _quantised(tensor_type: TensorType, num_bytes: int, rng: np.random.Generator, scale: float) -> npt.NDArray[np.uint8]:
    data = rng.integers(0, 256, num_bytes, np.uint8)
    blocks = data.reshape(-1, tensor_type.block_bytes)
    for offset in HALF_FIELDS[tensor_type]:
        halves = rng.normal(0.0, scale, (len(blocks), 1)).astype("<f2")
        blocks[:, offset : offset + 2] = halves.view(np.uint8)
    return data
