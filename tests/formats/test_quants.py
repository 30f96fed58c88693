"""Our decoders against the `gguf` package: equal bit for bit, on random blocks and on a real model."""

from __future__ import annotations

from pathlib import Path

import gguf.quants
import numpy as np
import numpy.typing as npt
import pytest

from paceline.formats.checkpoint import RawTensor
from paceline.formats.gguf import GgufCheckpoint
from paceline.formats.quants import dequantize, dequantize_rows
from paceline.formats.types import TensorType
from tests.generators.blocks import FLOAT_TYPES, QUANTISED_TYPES, plain_bytes, random_tensor


def by_gguf(tensor: RawTensor) -> npt.NDArray[np.float32]:
    """What the `gguf` package decodes."""
    number = gguf.GGMLQuantizationType(tensor.type.value)
    rows = tensor.data.reshape(-1, tensor.type.num_bytes(tensor.shape[-1:]))
    if tensor.type in (TensorType.F32, TensorType.F16):
        rows = rows.view("<f4" if tensor.type is TensorType.F32 else "<f2")
    values: npt.NDArray[np.float32] = gguf.quants.dequantize(rows, number).astype(np.float32)
    return values.reshape(tensor.shape)


def bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return values.view(np.uint32)


@pytest.mark.parametrize("tensor_type", QUANTISED_TYPES + FLOAT_TYPES, ids=lambda t: t.name)
def test_random_blocks_decode_to_the_same_bits_as_gguf(tensor_type: TensorType) -> None:
    tensor = random_tensor(tensor_type, (7, 5, 512), np.random.default_rng(3), scale=0.1)
    ours = dequantize(tensor)
    assert ours.shape == (7, 5, 512)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(bits(ours), bits(by_gguf(tensor)))


@pytest.mark.parametrize("tensor_type", QUANTISED_TYPES, ids=lambda t: t.name)
def test_every_bit_of_a_block_matters(tensor_type: TensorType) -> None:
    # Eight blocks: in one of them, a scale or an integer may happen to be zero and hide the flip.
    whole = random_tensor(tensor_type, (8, tensor_type.block_size), np.random.default_rng(5), scale=0.1)
    before = bits(dequantize(whole))
    for bit in range(8 * tensor_type.block_bytes):
        data = whole.data.copy()
        data[bit // 8 :: tensor_type.block_bytes] ^= np.uint8(1 << bit % 8)
        after = bits(dequantize(RawTensor("flipped", tensor_type, whole.shape, data)))
        assert not np.array_equal(before, after), f"bit {bit} is read by nobody"


def test_a_tensor_of_many_pieces_decodes_as_its_rows_do() -> None:
    tensor = random_tensor(TensorType.Q6_K, (1100, 256), np.random.default_rng(7))
    np.testing.assert_array_equal(dequantize(tensor), np.stack([dequantize_rows(tensor, [row])[0] for row in range(1100)]))


@pytest.mark.parametrize("tensor_type", QUANTISED_TYPES + FLOAT_TYPES, ids=lambda t: t.name)
def test_rows_come_in_the_order_asked_for(tensor_type: TensorType) -> None:
    tensor = random_tensor(tensor_type, (9, 256), np.random.default_rng(11))
    np.testing.assert_array_equal(dequantize_rows(tensor, [8, 0, 3, 3]), dequantize(tensor)[[8, 0, 3, 3]])


@pytest.mark.parametrize("row", [-1, 9])
def test_a_row_outside_the_tensor_is_refused(row: int) -> None:
    tensor = random_tensor(TensorType.Q8_0, (9, 32), np.random.default_rng(13))
    with pytest.raises(IndexError, match=f"row {row} "):
        dequantize_rows(tensor, [0, row])


def test_no_rows_give_an_empty_matrix() -> None:
    tensor = random_tensor(TensorType.Q4_K, (2, 256), np.random.default_rng(17))
    assert dequantize_rows(tensor, []).shape == (0, 256)


@pytest.mark.parametrize(
    ("tensor_type", "dtype"),
    [(TensorType.I8, "<i1"), (TensorType.I16, "<i2"), (TensorType.I32, "<i4"), (TensorType.I64, "<i8")],
    ids=lambda value: str(value),
)
def test_integers_keep_their_value(tensor_type: TensorType, dtype: str) -> None:
    data = np.array([[-7, 0, 100]], dtype).view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(dequantize(RawTensor("n", tensor_type, (1, 3), data)), [[-7.0, 0.0, 100.0]])


def test_doubles_are_rounded_to_single() -> None:
    values = np.array([0.1, -2.5, 1e300])
    decoded = dequantize(RawTensor("d", TensorType.F64, (3,), values.view(np.uint8)))
    np.testing.assert_array_equal(decoded, np.array([0.1, -2.5, np.inf], np.float32))


def test_bfloat16_keeps_the_upper_half() -> None:
    values = np.array([1.0, -0.15625, 3.0e38, 0.0], np.float32)
    tensor = RawTensor("b", TensorType.BF16, (4,), plain_bytes(TensorType.BF16, values))
    np.testing.assert_array_equal(bits(dequantize(tensor)), bits(values) & np.uint32(0xFFFF0000))


def test_the_default_model_decodes_to_the_same_bits_as_gguf(smollm2_path: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_path)
    names = ["blk.0.attn_q.weight", "blk.7.ffn_down.weight", "blk.29.attn_v.weight", "blk.29.ffn_norm.weight", "output_norm.weight"]
    types = set()
    for name in names:
        tensor = checkpoint.tensor(name)
        types.add(tensor.type)
        np.testing.assert_array_equal(bits(dequantize(tensor)), bits(by_gguf(tensor)), err_msg=name)
    assert types == {TensorType.Q4_1, TensorType.F32}
    embedding = checkpoint.tensor("token_embd.weight")
    assert embedding.type is TensorType.Q8_0
    rows = [0, 17, 49151]
    picked = RawTensor("rows", embedding.type, (3, 576), embedding.data.reshape(49152, -1)[rows].reshape(-1))
    np.testing.assert_array_equal(bits(dequantize_rows(embedding, rows)), bits(by_gguf(picked)))
