"""The reference backend: block tables, slices, copies, rounding and picks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.backends.base import BLOCK_SIZE, F32, I64, PoolShape
from paceline.backends.reference import ReferenceBackend
from paceline.backends.reference_weights import F64, LinearWeights, quantize_activations, rounded
from paceline.formats.checkpoint import RawTensor
from paceline.formats.open import open_checkpoint
from paceline.formats.quants import dequantize
from paceline.formats.types import TensorType
from paceline.models.load import Model, load_model
from paceline.models.ops import Matrix
from tests.generators.steps import TEST_POOL, SliceOf, logits_of_sequences, random_ids, step_of
from tests.generators.tiny_models import random_blocks, tiny_gguf

FAMILIES = ["llama", "qwen2", "gemma3"]
SAME = 1e-6
"""Logits leave as float32: two float64 computations that differ only in the order of sums agree to its last bit or so."""

QUANTISED = [kind for kind in TensorType if kind.is_quantised]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A tiny float model of every family."""
    folder = tmp_path_factory.mktemp("models")
    return {family: load_model(open_checkpoint(tiny_gguf(folder / f"{family}.gguf", family))) for family in FAMILIES}


def backend_of(model: Model, *, quantized_activations: bool = False) -> ReferenceBackend:
    """A backend with an ordinary pool."""
    return ReferenceBackend(model, TEST_POOL, quantized_activations=quantized_activations)


def assert_same(found: F32, expected: F32) -> None:
    """Equal up to the order of float64 sums."""
    assert float(np.abs(found - expected).max()) <= SAME * float(np.abs(expected).max())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slice_tokens", [1, 7, 16, 17])
def test_slices_give_the_logits_of_the_whole(models: dict[str, Model], family: str, slice_tokens: int) -> None:
    prompt = random_ids(262, 37, seed=1)
    whole = logits_of_sequences(backend_of(models[family]), [prompt])[0]
    assert_same(logits_of_sequences(backend_of(models[family]), [prompt], slice_tokens=slice_tokens)[0], whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sequence_does_not_see_its_neighbours(models: dict[str, Model], family: str) -> None:
    prompts = [random_ids(262, length, seed=length) for length in (1, 15, 16, 17, 40)]
    together = logits_of_sequences(backend_of(models[family]), prompts, slice_tokens=9)
    for prompt, found in zip(prompts, together, strict=True):
        assert_same(found, logits_of_sequences(backend_of(models[family]), [prompt])[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_which_blocks_a_sequence_has_does_not_matter(models: dict[str, Model], family: str) -> None:
    prompt = random_ids(262, 40, seed=2)
    first, second = (logits_of_sequences(backend_of(models[family]), [prompt], slice_tokens=11, seed=seed)[0] for seed in (0, 1))
    assert_same(first, second)


def test_a_wrong_block_table_changes_the_logits(models: dict[str, Model]) -> None:
    backend, prompt = backend_of(models["llama"]), random_ids(262, 34, seed=3)
    backend.forward(step_of([SliceOf(prompt[:33], 0, [1, 2, 3])]))
    right, wrong = (backend.forward(step_of([SliceOf(prompt[33:], 33, blocks)])).logits for blocks in ([1, 2, 3], [1, 4, 3]))
    assert right is not None
    assert wrong is not None
    assert float(np.abs(right - wrong).max()) > 0.01


def test_blocks_that_the_window_left_are_not_read(models: dict[str, Model]) -> None:
    # Every layer gets the window of 8 that the first one has
    spec = models["gemma3"].spec
    model = replace(models["gemma3"], spec=replace(spec, layers=spec.layers[:1] * len(spec.layers)))
    prompt = random_ids(262, 49, seed=4)
    backend = backend_of(model)
    backend.forward(step_of([SliceOf(prompt[:48], 0, [1, 2, 3])]))
    kept = backend.forward(step_of([SliceOf(prompt[48:], 48, [1, 2, 3, 4])])).logits
    freed = backend.forward(step_of([SliceOf(prompt[48:], 48, [0, 0, 3, 4])])).logits
    assert kept is not None
    assert freed is not None
    assert kept.tobytes() == freed.tobytes()


def test_copies_are_done_before_anything_is_written(models: dict[str, Model]) -> None:
    backend, prompt = backend_of(models["llama"]), random_ids(262, 20, seed=5)
    expected = logits_of_sequences(backend_of(models["llama"]), [prompt])[0][19:]
    backend.forward(step_of([SliceOf(prompt[:19], 0, [1, 2])]))
    # Block 2 is shared and half full: a copy takes the next token, the original stays as it was
    other = backend.forward(step_of([SliceOf([7], 19, [1, 3])], copies=[(2, 3)])).logits
    found = backend.forward(step_of([SliceOf(prompt[19:], 19, [1, 2])])).logits
    assert found is not None
    assert other is not None
    assert_same(found, expected)
    assert float(np.abs(other - found).max()) > 0.01


def test_only_the_rows_asked_for_are_given(models: dict[str, Model]) -> None:
    prompt = random_ids(262, 12, seed=6)
    everything = backend_of(models["llama"]).forward(step_of([SliceOf(prompt, 0, [1])]))
    some = backend_of(models["llama"]).forward(step_of([SliceOf(prompt, 0, [1])], row_indices=[11, 3]))
    assert everything.logits is not None
    assert some.logits is not None
    assert_same(some.logits, everything.logits[[11, 3]])
    assert some.picks.tolist() == everything.picks[[11, 3]].tolist() == some.logits.argmax(axis=1).tolist()


def test_logits_are_left_out_when_nobody_needs_them(models: dict[str, Model]) -> None:
    step = replace(step_of([SliceOf([1, 2], 0, [1])]), needs_logits=False)
    assert backend_of(models["llama"]).forward(step).logits is None


def test_block_bytes_count_keys_and_values_of_all_layers(models: dict[str, Model]) -> None:
    numbers = 2 * 2 * BLOCK_SIZE * 2 * 16
    assert backend_of(models["llama"]).kv_bytes_per_block == numbers * 8
    assert backend_of(models["llama"], quantized_activations=True).kv_bytes_per_block == numbers * 2 + 2 * 2 * BLOCK_SIZE * 2 * 4


def test_names_tell_the_modes_apart(models: dict[str, Model]) -> None:
    exact, rounding = backend_of(models["llama"]), backend_of(models["llama"], quantized_activations=True)
    assert (exact.name, rounding.name) == ("reference:exact", "reference:quantized_activations")
    assert exact.numerics != rounding.numerics
    assert exact.vocab_size == 262


# Activations quantised as the native core does it


def test_activations_take_the_nearest_of_127_steps_of_their_block() -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, :4] = [127.0, -127.0, 1.4, -63.6]
    x[0, 32] = -2.0
    quants, scales = quantize_activations(x)
    assert quants[0, 0, :4].tolist() == [127, -127, 1, -64]
    assert quants[0, 1, 0] == -127
    assert scales.tolist() == [[1.0, np.float32(2.0) / np.float32(127.0)]]


def test_activations_round_halves_to_even() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :5] = [127.0, 0.5, 1.5, 2.5, -0.5]
    assert quantize_activations(x)[0][0, 0, :5].tolist() == [127, 0, 2, 2, 0]


def test_a_block_of_zeros_stays_zero() -> None:
    quants, scales = quantize_activations(np.zeros((2, 32), np.float32))
    assert not quants.any()
    assert not scales.any()


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_linear_is_integer_sums_times_scales(kind: TensorType) -> None:
    """The oracle's one shortcut, float64 in place of integers, is checked against int64 sums over every type's own integers."""
    rng = np.random.default_rng(8)
    num_rows, num_cols, run = 24, 512, 16
    weight = RawTensor("w", kind, (num_rows, num_cols), np.frombuffer(random_blocks(kind, (num_rows, num_cols), 0.1, rng), np.uint8))
    x = rng.normal(size=(3, num_cols)).astype(np.float32)
    quants, scales = quantize_activations(x)
    # Any affine type is, over a run of 16 channels, low + step · n with whole n; both follow from its values
    values = dequantize(weight).astype(np.float64).reshape(num_rows, -1, run)
    low, integers, step = affine(values)
    runs = quants.reshape(3, -1, run).astype(np.int64)
    sums = np.einsum("tbk,nbk->tnb", runs, integers)
    terms = sums * step + runs.sum(axis=-1)[:, None] * low
    expected = (terms * np.repeat(scales, 2, axis=1)[:, None]).sum(axis=-1)
    found = LinearWeights(quantizes_activations=True).multiply(x.astype(np.float64), Matrix("m", (weight,)))
    # What is left is the float32 rounding of the dequantised values (2⁻²⁴ each) and the steps found from them
    assert np.abs(found - expected).max() <= 2.0**-20 * np.abs(expected).max()


def affine(values: F64) -> tuple[F64, I64, F64]:
    """low, whole n and step with values = low + step · n, for runs of equal steps. Shapes: [N, B, 16] → [N, B], [N, B, 16], [N, B]"""
    low = values.min(axis=-1)
    offsets = values - low[..., None]
    widest = offsets.max(axis=-1)
    best = np.zeros_like(offsets, np.int64)
    # The fewest steps that make every offset whole, to what float32 resolves
    for count in range(255, 0, -1):
        scaled = offsets * np.divide(count, widest, out=np.zeros_like(widest), where=widest > 0)[..., None]
        is_whole = np.abs(scaled - np.rint(scaled)).max(axis=-1) < 1e-3
        best[is_whole] = np.rint(scaled[is_whole]).astype(np.int64)
    step = np.divide(widest, best.max(axis=-1), out=np.zeros_like(widest), where=widest > 0)
    return low, best, step


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
def test_activations_entering_a_float_weight_stay_as_they_are(kind: TensorType) -> None:
    data = np.ones(32 * (4 if kind is TensorType.F32 else 2), np.uint8)
    weight = Matrix("m", (RawTensor("w", kind, (1, 32), data),))
    x = np.random.default_rng(9).normal(size=(1, 32))
    exact, rounding = (LinearWeights(quantizes_activations=mode).multiply(x, weight) for mode in (False, True))
    assert exact.tobytes() == rounding.tobytes()


def test_rounded_activations_are_off_by_at_most_half_a_step() -> None:
    x = np.random.default_rng(10).normal(size=(5, 96))
    steps = np.abs(x).reshape(5, 3, 32).max(axis=-1, keepdims=True) / 127
    assert np.all(np.abs((rounded(x) - x).reshape(5, 3, 32)) <= 0.5001 * steps)


def test_rounding_mode_keeps_float16_keys_and_values(models: dict[str, Model]) -> None:
    backend = backend_of(models["llama"], quantized_activations=True)
    prompt = random_ids(262, 30, seed=11)
    exact = logits_of_sequences(backend_of(models["llama"]), [prompt])[0]
    found = logits_of_sequences(backend, [prompt])[0]
    # Float weights: only keys and values are rounded, each to 2⁻¹¹ of itself
    error = float(np.abs(found - exact).max()) / float(np.abs(exact).max())
    assert 1e-6 < error < 2.0**-8


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_models_run_close_to_exact(tmp_path: Path, kind: TensorType) -> None:
    model = load_model(open_checkpoint(tiny_gguf(tmp_path / "m.gguf", "llama", tensor_type=kind)))
    prompt, pool = random_ids(262, 20, seed=12), PoolShape(4, 2)
    exact, rounding = (
        logits_of_sequences(ReferenceBackend(model, pool, quantized_activations=mode), [prompt], num_blocks=4)[0] for mode in (False, True)
    )
    error = float(np.abs(rounding - exact).max()) / float(np.abs(exact).max())
    # Two layers, each rounding four times to about 1/254 of a block's peak
    assert 1e-4 < error < 0.05
