"""The reference backend against transformers in float32, on tiny random models of every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from paceline.backends import reference_ops
from paceline.backends.base import F32
from paceline.backends.reference import ReferenceBackend
from paceline.backends.reference_ops import ReferenceOps
from paceline.formats.open import open_checkpoint
from paceline.models.load import Model, load_model
from tests.generators.steps import TEST_POOL, logits_of_sequences, random_ids
from tests.generators.tiny_models import TinyModel, tiny_model, write_folder, write_gguf_of
from tests.parity.tolerance import float32_tolerance, relative_error

VARIANTS: dict[str, TinyModel] = {
    "llama": tiny_model("llama"),
    "llama tied": tiny_model("llama", is_tied=True),
    "llama with biases": tiny_model("llama", has_attention_bias=True),
    "llama with one key-value head": tiny_model("llama", num_kv_heads=1),
    "llama with wide heads": tiny_model("llama", head_dim=32),
    "llama with linear rope": tiny_model("llama", rope_scaling="linear"),
    "llama with llama3 rope": tiny_model("llama", rope_scaling="llama3"),
    "qwen2": tiny_model("qwen2"),
    "qwen2 untied": tiny_model("qwen2", is_tied=False),
    "qwen2 with linear rope": tiny_model("qwen2", rope_scaling="linear"),
    "gemma3": tiny_model("gemma3"),
    "gemma3 with linear rope": tiny_model("gemma3", rope_scaling="linear"),
}
PROMPT_TOKENS = 40
"""Five windows of the tiny Gemma, two and a half blocks."""


class Case:
    """One variant: its files, the model read from each, and what transformers says about a prompt."""

    def __init__(self, tiny: TinyModel, folder: Path) -> None:
        self.tiny = tiny
        self.folder = load_model(open_checkpoint(write_folder(tiny, folder / "folder")))
        self.gguf = load_model(open_checkpoint(write_gguf_of(tiny, folder / "tiny.gguf")))
        self.prompt = random_ids(tiny.vocab_size, PROMPT_TOKENS, seed=3)
        self.expected = transformers_logits(folder / "folder", self.prompt)
        self.tolerance = float32_tolerance(self.folder.spec)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All variants, made once."""
    return {name: Case(tiny, tmp_path_factory.mktemp("model")) for name, tiny in VARIANTS.items()}


def transformers_logits(folder: Path, prompt: list[int]) -> F32:
    """What transformers computes in float32. Shapes: → [n, V]"""
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits: F32 = model(torch.tensor([prompt])).logits[0].numpy()
    return logits


def reference_logits(model: Model, prompt: list[int], **how: Any) -> F32:
    """What the exact reference computes."""
    return logits_of_sequences(ReferenceBackend(model, TEST_POOL), [prompt], **how)[0]


@pytest.mark.parametrize("name", VARIANTS)
def test_folder_gives_the_logits_of_transformers(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert relative_error(reference_logits(case.folder, case.prompt), case.expected) < case.tolerance


@pytest.mark.parametrize("name", VARIANTS)
def test_gguf_gives_the_logits_of_transformers(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert relative_error(reference_logits(case.gguf, case.prompt), case.expected) < case.tolerance


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3"])
def test_batch_of_slices_over_shuffled_blocks_gives_the_logits_of_transformers(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    others = [random_ids(case.tiny.vocab_size, length, seed=length) for length in (5, 17, 33)]
    found = logits_of_sequences(ReferenceBackend(case.gguf, TEST_POOL), [*others, case.prompt], slice_tokens=7, seed=5)
    assert relative_error(found[-1], case.expected) < case.tolerance


# Planted swaps: the very check above must notice each of them, and by far.


def interleaved_rope(self: ReferenceOps, x: Any, positions: Any, spec: Any, head_dim: int) -> Any:
    """Rotates pairs of neighbours in place of halves."""
    heads = x.reshape(len(x), -1, head_dim)
    order = np.concatenate([np.arange(0, spec.dim, 2), np.arange(1, spec.dim, 2), np.arange(spec.dim, head_dim)])
    rotated = RIGHT_ROPE(self, heads[..., order].reshape(x.shape), positions, spec, head_dim).reshape(heads.shape)
    return rotated[..., np.argsort(order)].reshape(x.shape)


def late_mask(positions: Any, key_positions: Any, window: int | None) -> Any:
    """Hides each token from itself, except the first."""
    return RIGHT_MASK(np.maximum(positions - 1, 0), key_positions, window)


def wide_window(positions: Any, key_positions: Any, window: int | None) -> Any:
    """Lets a window see one token more."""
    return RIGHT_MASK(positions, key_positions, None if window is None else window + 1)


def larger_scale(self: ReferenceOps, q: Any, k: Any, v: Any, layer: int, spec: Any) -> Any:
    """Multiplies the scores of layer 1 by 1.01."""
    return RIGHT_ATTENTION(self, q * (1.01 if layer == 1 else 1.0), k, v, layer, spec)


RIGHT_ROPE, RIGHT_MASK, RIGHT_ATTENTION = ReferenceOps.rope, reference_ops.is_seen, ReferenceOps.attention
SWAPS: dict[str, tuple[object, str, object]] = {
    "rope pairs": (ReferenceOps, "rope", interleaved_rope),
    "one scale": (ReferenceOps, "attention", larger_scale),
    "mask off by one": (reference_ops, "is_seen", late_mask),
    "window off by one": (reference_ops, "is_seen", wide_window),
}


PLANTED = [(name, swap) for name in ("llama", "qwen2", "gemma3") for swap in SWAPS if name == "gemma3" or swap != "window off by one"]


@pytest.mark.parametrize(("name", "swap"), PLANTED)
def test_planted_swap_is_noticed(cases: dict[str, Case], name: str, swap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases[name]
    target, attribute, planted = SWAPS[swap]
    monkeypatch.setattr(target, attribute, planted)
    assert relative_error(reference_logits(case.gguf, case.prompt), case.expected) > 10 * case.tolerance
