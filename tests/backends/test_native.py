"""The native backend: against the reference on tiny models of every family, bit-equal rows, the real small model, and faults."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paceline.backends.base import Draws, KvDtype, PoolShape, StepInput
from paceline.backends.native import _core
from paceline.backends.native.backend import NativeBackend
from paceline.backends.native.recorder import Recorder
from paceline.backends.native.targets import choose_target, explain_targets
from paceline.backends.reference import ReferenceBackend
from paceline.errors import EngineError, RequestError
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import Model, load_model
from paceline.models.spec import AttentionSpec, RopeSpec
from paceline.sampling import draw
from tests.generators.steps import TEST_POOL, SliceOf, greedy_draws, logits_of_sequences, random_ids, step_of
from tests.generators.tiny_models import tiny_gguf

Models = dict[tuple[str, TensorType], Model]
TARGETS = [target.name for target in explain_targets() if target.is_available]
FAMILIES = ["llama", "qwen2", "gemma3"]
TYPES = [TensorType.F32, TensorType.Q4_0, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q6_K]
RELATIVE = 1e-4
"""The agreement that the architecture asks of native and reference."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A tiny model of every family and type."""
    folder = tmp_path_factory.mktemp("models")
    kinds = [(family, kind) for family in FAMILIES for kind in TYPES]
    return {(f, k): load_model(open_checkpoint(tiny_gguf(folder / f"{f}-{k.name}.gguf", f, tensor_type=k))) for f, k in kinds}


def native(model: Model, *, target: str | None = None, threads: int = 2, kv_dtype: KvDtype = "int16") -> NativeBackend:
    """A backend with an ordinary pool, any token of a step being a logits row."""
    return NativeBackend(model, TEST_POOL, threads=threads, target=target, kv_dtype=kv_dtype, max_tokens=768, max_rows=768)


def row_errors_of(model: Model, backend: NativeBackend, *, slice_tokens: int = 7, kv_dtype: KvDtype = "int16") -> npt.NDArray[np.float32]:
    """For each row of 16 sequences of ten tokens: the largest difference to the reference, relative to the sequence's largest logit.

    Shapes:  → [16, 10]
    """
    prompts = [random_ids(model.spec.vocab_size, 10, seed=seed) for seed in range(16)]
    expected = logits_of_sequences(ReferenceBackend(model, TEST_POOL, quantized_activations=True, kv_dtype=kv_dtype), prompts)
    found = logits_of_sequences(backend, prompts, slice_tokens=slice_tokens)
    pairs = zip(found, expected, strict=True)
    return np.array([np.abs(ours - theirs).max(axis=1) / np.abs(theirs).max() for ours, theirs in pairs])


def errors_of(model: Model, backend: NativeBackend) -> list[float]:
    """For each of the 16 sequences: its worst row, smallest first."""
    return sorted(row_errors_of(model, backend).max(axis=1).tolist())


# Ten tokens pass some 10,000 numbers through roundings to integers. Where float32 and float64 lie on either side of a
# rounding border (2e-5 of all numbers; 3e-3 of the weights of attention, whose units are small), one number differs by a
# whole quantum, and the logits by up to 2 %: both are right. So most rows must meet no such tie and agree to RELATIVE, first
# tokens (a tenth of the roundings) three of four, some whole sequences too, which no wrong code does (see the swaps), and
# none may be far. Models of K types are four times as wide, and so have as many more borders: there, the first five tokens.
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_reference(models: Models, family: str, kind: TensorType, target: str) -> None:
    errors = row_errors_of(models[family, kind], native(models[family, kind], target=target))
    most = errors[:, :5] if kind in (TensorType.Q4_K, TensorType.Q6_K) else errors
    assert np.median(most) <= RELATIVE
    assert np.count_nonzero(errors[:, 0] <= RELATIVE) >= 12
    assert np.count_nonzero(most.max(axis=1) <= RELATIVE) >= 2
    assert errors.max() <= 0.05


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_over_an_int8_cache_are_those_of_the_reference(models: Models, family: str, target: str) -> None:
    model = models[family, TensorType.Q4_0]
    errors = row_errors_of(model, native(model, target=target, kv_dtype="int8"), kv_dtype="int8")
    assert np.median(errors) <= RELATIVE
    assert np.count_nonzero(errors.max(axis=1) <= RELATIVE) >= 2
    assert errors.max() <= 0.05


RIGHT_ATTENTION, RIGHT_ROPE = Recorder.attention, Recorder.rope


def attention_with(**changes: Any) -> Any:
    """The op with changes to its spec."""
    return lambda self, q, k, v, layer, spec: RIGHT_ATTENTION(self, q, k, v, layer, replace(spec, **changes))


def scaled_attention(self: Recorder, q: Any, k: Any, v: Any, layer: int, spec: AttentionSpec) -> Any:
    """Scales the scores of layer 1 by 1.01."""
    return RIGHT_ATTENTION(self, q, k, v, layer, replace(spec, scale=spec.scale * (1.01 if layer == 1 else 1.0)))


def swapped_keys_and_values(self: Recorder, q: Any, k: Any, v: Any, layer: int, spec: AttentionSpec) -> Any:
    """Attends over values."""
    return RIGHT_ATTENTION(self, q, v, k, layer, spec)


def turned_rope(self: Recorder, x: Any, positions: Any, spec: RopeSpec, head_dim: int) -> Any:
    """Turns a little faster."""
    return RIGHT_ROPE(self, x, positions, replace(spec, theta=spec.theta * 0.99), head_dim)


def unrotated_keys(self: Recorder, x: Any, positions: Any, spec: RopeSpec, head_dim: int) -> Any:
    """Leaves the keys (the narrower ones) as they are."""
    return x if x.cols < 64 else RIGHT_ROPE(self, x, positions, spec, head_dim)


SWAPS = {
    "one scale": ("attention", scaled_attention),
    "window off by one": ("attention", attention_with(window=9)),
    "keys for values": ("attention", swapped_keys_and_values),
    "rope base": ("rope", turned_rope),
    "keys not rotated": ("rope", unrotated_keys),
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("family", FAMILIES)
def test_planted_swap_is_noticed(models: Models, family: str, swap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, planted = SWAPS[swap]
    monkeypatch.setattr(Recorder, name, planted)
    assert errors_of(models[family, TensorType.Q4_0], native(models[family, TensorType.Q4_0]))[0] > 3 * RELATIVE


def test_interleaved_rope_rows_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_gguf(tmp_path / "llama.gguf", "llama", tensor_type=TensorType.Q4_0)
    right = load_model(open_checkpoint(path))
    monkeypatch.setattr("paceline.models.weights.half_split", lambda tensor, attention: tensor)
    assert errors_of(right, native(load_model(open_checkpoint(path))))[0] > 3 * RELATIVE


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("family", "kind", "kv_dtype"),
    [("llama", TensorType.Q4_K, "int16"), ("qwen2", TensorType.Q8_0, "int8"), ("gemma3", TensorType.Q6_K, "int16")],
)
def test_a_row_has_the_same_bits_in_any_company(models: Models, family: str, kind: TensorType, kv_dtype: KvDtype, target: str) -> None:
    model = models[family, kind]
    prompts = [random_ids(model.spec.vocab_size, length, seed=length) for length in (300, 1, 16, 17, 33, 64, 100, 200)]
    alone = logits_of_sequences(native(model, target=target, threads=1, kv_dtype=kv_dtype), prompts[:1])[0]
    one, two = (native(model, target=target, threads=threads, kv_dtype=kv_dtype) for threads in (1, 2))
    for backend, sequences, slice_tokens, seed in (
        (two, prompts[:1], None, 1),
        (two, prompts[:1], 16, 2),
        (one, prompts, 31, 3),
        (two, prompts, None, 4),
        (two, prompts[:1], 1, 5),
    ):
        found = logits_of_sequences(backend, sequences, slice_tokens=slice_tokens, seed=seed)[0]
        np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("target", TARGETS)
def test_stale_blocks_do_not_matter(models: Models, target: str) -> None:
    model = models["gemma3", TensorType.Q4_0]
    prompt = random_ids(model.spec.vocab_size, 50, seed=1)
    fresh, used = native(model, target=target), native(model, target=target)
    logits_of_sequences(used, [random_ids(model.spec.vocab_size, 400, seed=seed) for seed in range(8)], slice_tokens=60)
    np.testing.assert_array_equal(logits_of_sequences(used, [prompt])[0], logits_of_sequences(fresh, [prompt])[0])


def test_copied_blocks_hold_the_same_sequence(models: Models) -> None:
    model = models["llama", TensorType.Q4_0]
    backend, prompt = native(model), random_ids(model.spec.vocab_size, 34, seed=3)
    backend.forward(step_of([SliceOf(prompt[:33], 0, [1, 2, 3])]))
    kept = logits(backend, step_of([SliceOf(prompt[33:], 33, [1, 2, 3])])).copy()
    copied = step_of([SliceOf(prompt[33:], 33, [4, 5, 6])], copies=[(1, 4), (2, 5), (3, 6)])
    np.testing.assert_array_equal(logits(backend, copied), kept)


def logits(backend: NativeBackend, step: StepInput) -> Any:
    """The logits of a step."""
    output = backend.forward(step)
    assert output.logits is not None
    return output.logits


def some_draws(num_rows: int, rng: np.random.Generator, **fixed: Any) -> Draws:
    """Random draws; `fixed` fields are the same for all rows."""

    def choice(name: str, values: list[float], dtype: type) -> Any:
        return np.full(num_rows, fixed[name], dtype) if name in fixed else rng.choice(values, num_rows).astype(dtype)

    return Draws(
        temperature=choice("temperature", [0.0, 0.3, 1.0, 4.0], np.float32),
        top_k=choice("top_k", [0, 0, 1, 2, 50, 5000], np.int32),
        top_p=choice("top_p", [1.0, 1.0, 0.0001, 0.5, 0.95, 0.99999], np.float32),
        min_p=choice("min_p", [0.0, 0.0, 0.05, 1.0], np.float32),
        seeds=rng.integers(0, 2**64, num_rows, np.uint64),
        seq_indices=rng.integers(0, 4, num_rows, np.int32),
        positions=rng.integers(0, 4000, num_rows, np.int32),
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_picks_are_those_of_the_reference_draw(models: Models, spread: float, target: str) -> None:
    backend = native(models["llama", TensorType.Q4_0], target=target)
    rng = np.random.default_rng(int(spread))
    for _ in range(3):
        values = rng.normal(0.0, 1.0, (256, backend.vocab_size)) * spread
        rows = np.round(values, 1).astype(np.float32)  # ties in plenty
        rows[rng.random(rows.shape) < 0.3] = -np.inf
        draws = some_draws(256, rng)
        np.testing.assert_array_equal(backend.pick(rows, draws), draw.pick(rows, draws))


def test_a_row_of_masked_tokens_still_picks_a_token(models: Models) -> None:
    backend = native(models["llama", TensorType.Q4_0])
    rows = np.full((4, backend.vocab_size), -np.inf, np.float32)
    assert all(0 <= token < backend.vocab_size for token in backend.pick(rows, some_draws(4, np.random.default_rng(0))))


def test_forward_picks_from_its_own_logits(models: Models) -> None:
    backend = native(models["qwen2", TensorType.Q8_0])
    step = step_of([SliceOf(random_ids(backend.vocab_size, 40, seed=1), 0, [3, 1, 2])])
    step = replace(step, draws=some_draws(40, np.random.default_rng(2)))
    output = backend.forward(step)
    assert output.logits is not None
    np.testing.assert_array_equal(output.picks, draw.pick(output.logits, step.draws))
    assert backend.forward(replace(step, needs_logits=False)).logits is None


def test_a_step_without_logits_rows_computes_the_cache(models: Models) -> None:
    model = models["llama", TensorType.Q4_0]
    backend, prompt = native(model), random_ids(model.spec.vocab_size, 20, seed=1)
    assert len(backend.forward(step_of([SliceOf(prompt[:19], 0, [1, 2])], row_indices=[])).picks) == 0
    last = logits(backend, step_of([SliceOf(prompt[19:], 19, [1, 2])]))
    np.testing.assert_array_equal(last, logits_of_sequences(native(model), [prompt])[0][-1:])


GOOD = step_of([SliceOf([1, 2, 3], 0, [1]), SliceOf([4], 16, [2, 3])])
FAULTS: dict[str, StepInput] = {
    "token beyond the vocabulary": replace(GOOD, token_ids=np.array([1, 2, 3, 262], np.int32)),
    "negative token": replace(GOOD, token_ids=np.array([1, -2, 3, 4], np.int32)),
    "position beyond the context": replace(GOOD, positions=np.array([0, 1, 3, 16], np.int32)),
    "negative position": replace(GOOD, positions=np.array([-1, 1, 2, 16], np.int32)),
    "missing position": replace(GOOD, positions=GOOD.positions[:3]),
    "block beyond the pool": replace(GOOD, block_tables=np.array([[[1, 0], [2, 257]]], np.int32)),
    "negative block": replace(GOOD, block_tables=np.array([[[1, 0], [-2, 3]]], np.int32)),
    "write into the null block": replace(GOOD, block_tables=np.array([[[0, 0], [2, 3]]], np.int32)),
    "two groups": replace(GOOD, block_tables=np.repeat(GOOD.block_tables, 2, axis=0)),
    "context beyond the table": replace(GOOD, context_lens=np.array([33, 17], np.int32)),
    "slices that do not cover the tokens": replace(GOOD, slice_starts=np.array([0, 3, 3], np.int32)),
    "slices that go back": replace(GOOD, slice_starts=np.array([0, 5, 4], np.int32)),
    "row beyond the tokens": replace(GOOD, row_indices=np.array([0, 1, 2, 4], np.int32)),
    "copy beyond the pool": replace(GOOD, copies=np.array([[1, 257]], np.int32)),
    "too few draws": replace(GOOD, draws=greedy_draws(3)),
    "tokens that are not integers": replace(GOOD, token_ids=np.array([1.5, 2, 3, 4])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_malformed_step_is_refused_and_harms_nothing(models: Models, fault: str) -> None:
    backend = native(models["llama", TensorType.Q4_0])
    before = logits(backend, GOOD).copy()
    with pytest.raises(EngineError, match=r"malformed|groups"):
        backend.forward(FAULTS[fault])
    np.testing.assert_array_equal(logits(backend, GOOD), before)


def test_more_tokens_than_the_arena_holds_are_refused(models: Models) -> None:
    model = models["llama", TensorType.Q4_0]
    backend = NativeBackend(model, PoolShape(10, 2), threads=1, max_tokens=4, max_rows=2)
    with pytest.raises(EngineError, match="num_tokens"):
        backend.forward(step_of([SliceOf([1] * 5, 0, [1])], row_indices=[4]))
    with pytest.raises(EngineError, match="num_rows"):
        backend.forward(step_of([SliceOf([1] * 4, 0, [1])], row_indices=[1, 2, 3]))
    with pytest.raises(EngineError, match="at most 32"):
        backend.forward(step_of([SliceOf([1], 32, [1, 2, 3])]))
    assert backend.forward(step_of([SliceOf([1] * 4, 28, [1, 2])], row_indices=[3])).picks.shape == (1,)


def test_unknown_target_is_refused_by_name(models: Models) -> None:
    with pytest.raises(RequestError, match=r"`target` is `abacus`; expected one of .*portable"):
        native(models["llama", TensorType.Q4_0], target="abacus")


def test_target_is_forced_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TARGET", "portable")
    assert choose_target().name == "portable"
    monkeypatch.delenv("PACELINE_TARGET")
    assert choose_target().name == TARGETS[0]


def test_every_target_says_why() -> None:
    assert [target.name for target in explain_targets()] == ["avx512_vnni", "avx2_vnni", "avx2", "portable"]
    assert all(target.reason for target in explain_targets())


def test_progress_counts_instructions(models: Models) -> None:
    backend = native(models["llama", TensorType.Q4_0])
    before = backend.progress
    backend.forward(GOOD)
    assert backend.progress - before == len(backend.program.instructions)


def test_profile_times_every_instruction(models: Models) -> None:
    backend = native(models["llama", TensorType.Q4_0])
    backend.forward(GOOD)
    assert all(row.nanoseconds == 0 for row in backend.profile())
    backend.start_profile()
    backend.forward(GOOD)
    rows = backend.profile()
    assert len(rows) == len(backend.program.instructions) + 1
    assert sum(row.nanoseconds for row in rows if "linear" in row.text) > 0
    assert rows[-1].text == "pick"


def test_python_runs_during_a_step(models: Models) -> None:
    backend = native(models["gemma3", TensorType.Q4_K], target="portable", threads=1)
    step = step_of([SliceOf(random_ids(backend.vocab_size, 700, seed=1), 0, range(1, 45))], row_indices=[699])
    count, is_done = 0, threading.Event()

    def count_up() -> None:
        nonlocal count
        while not is_done.is_set():
            count += 1

    other = threading.Thread(target=count_up)
    other.start()
    while count == 0:
        pass
    before = count
    backend.forward(step)
    during = count - before
    is_done.set()
    other.join()
    # With the lock held for the whole step the other thread would get at most the switches around the call.
    assert during > 1000


def test_idle_backend_uses_no_cpu(models: Models) -> None:
    backend = native(models["llama", TensorType.Q4_0], threads=4)
    backend.forward(GOOD)
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.03
    backend.forward(GOOD)


def test_step_leaves_the_caller_free_to_run_anywhere(models: Models) -> None:
    allowed = os.sched_getaffinity(0)
    native(models["llama", TensorType.Q4_0], threads=len(allowed)).forward(GOOD)
    assert os.sched_getaffinity(0) == allowed


def test_closed_backend_says_so(models: Models) -> None:
    backend = native(models["llama", TensorType.Q4_0])
    backend.close()
    backend.close()
    with pytest.raises(EngineError, match="closed"):
        backend.forward(GOOD)


def test_load_reports_progress_to_the_end(models: Models) -> None:
    shares: list[float] = []
    model = models["llama", TensorType.Q4_0]
    NativeBackend(model, TEST_POOL, threads=1, max_tokens=8, max_rows=8, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_memory_that_is_refused_is_an_engine_error(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(total_bytes: int) -> None:
        raise MemoryError(f"{total_bytes} bytes")

    monkeypatch.setattr(_core, "Weights", refuse)
    with pytest.raises(EngineError, match="cannot start"):
        native(models["llama", TensorType.Q4_0])
