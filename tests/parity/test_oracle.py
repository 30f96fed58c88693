"""The oracle of quality runs against the exact reference, on tiny quantised models; and the figures it is compared by."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.oracle import load_oracle
from benchmarks.quality import compare_rows
from paceline.backends.reference import ReferenceBackend
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType
from paceline.models.load import load_model
from tests.generators.steps import TEST_POOL, logits_of_sequences, random_ids
from tests.generators.tiny_models import tiny_model, write_gguf_of
from tests.parity.tolerance import float32_tolerance, relative_error

MIXES: dict[str, dict[str, TensorType]] = {
    "as Q4_1": {"": TensorType.Q4_1, "token_embd": TensorType.Q8_0},
    "as Q4_K_M": {"": TensorType.Q4_K, "attn_v": TensorType.Q6_K, "ffn_down": TensorType.Q6_K, "attn_q": TensorType.Q5_0},
    "as BF16": {"": TensorType.BF16},
}


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("mix", MIXES)
def test_oracle_gives_the_logits_of_the_exact_reference(tmp_path: Path, family: str, mix: str) -> None:
    types = MIXES[mix]
    tiny = tiny_model(family, block_size=types[""].block_size)
    checkpoint = open_checkpoint(write_gguf_of(tiny, tmp_path / "tiny.gguf", tensor_type=types[""], types=types))
    model = load_model(checkpoint)
    prompt = random_ids(tiny.vocab_size, 40, seed=1)
    with torch.inference_mode():
        expected = load_oracle(checkpoint, model.spec)(torch.tensor([prompt])).logits[0].numpy()
    found = logits_of_sequences(ReferenceBackend(model, TEST_POOL), [prompt])[0]
    assert relative_error(found, expected) < float32_tolerance(model.spec)


def test_divergence_is_that_of_the_oracle_from_the_backend() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.5, 0.25]])
    kl, same, expected_nll, found_nll = compare_rows(p.log(), q.log() + 3.0, [1])[0]
    # 0.5 · ln 2 + 0.25 · ln ½
    assert kl == pytest.approx(0.25 * 0.693147, rel=1e-5)
    assert (same, expected_nll, found_nll) == (0.0, pytest.approx(1.386294, rel=1e-5), pytest.approx(0.693147, rel=1e-5))


def test_equal_logits_diverge_by_nothing() -> None:
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    rows = compare_rows(logits, logits, [1, 2, 3])
    assert rows[:, 0].tolist() == [0.0] * 4
    assert rows[:, 1].tolist() == [1.0] * 4
