"""The native backend on the real small model: it knows what the model knows, and cuts of a prompt change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.backends.native.backend import NativeBackend
from paceline.formats.open import open_checkpoint
from paceline.models.load import Model, load_model
from paceline.text.tokenizer import load_tokenizer
from tests.generators.steps import TEST_POOL, SliceOf, random_ids, shuffled_blocks, step_of


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[tuple[NativeBackend, Model]]:
    """The real small model on this machine's best target."""
    model = load_model(open_checkpoint(smollm2_path))
    backend = NativeBackend(model, TEST_POOL, threads=2, max_tokens=512, max_rows=8)
    yield backend, model
    backend.close()


def continuation(backend: NativeBackend, prompt: list[int], num_tokens: int, *, slice_tokens: int = 512) -> list[int]:
    """The greedy continuation of a prompt, the prompt computed in slices."""
    (blocks,) = shuffled_blocks([[0] * (len(prompt) + num_tokens)], TEST_POOL.num_blocks, seed=len(prompt))
    ids = list(prompt)
    for start in range(0, len(prompt), slice_tokens):
        part = prompt[start : start + slice_tokens]
        picks = backend.forward(step_of([SliceOf(part, start, blocks)], row_indices=[len(part) - 1])).picks
    ids.append(int(picks[0]))
    while len(ids) < len(prompt) + num_tokens:
        ids.append(int(backend.forward(step_of([SliceOf(ids[-1:], len(ids) - 1, blocks)])).picks[0]))
    return ids[len(prompt) :]


def test_smollm2_knows_a_capital(smollm2: tuple[NativeBackend, Model], smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(smollm2_path))
    prompt = tokenizer.encode("The capital of France is", add_special=True, parse_special=False)
    assert tokenizer.decode(continuation(smollm2[0], prompt, 6)).startswith(" Paris")


def test_smollm2_continues_alike_however_its_prompt_is_cut(smollm2: tuple[NativeBackend, Model]) -> None:
    backend, model = smollm2
    prompt = random_ids(model.spec.vocab_size, 90, seed=5)
    whole = continuation(backend, prompt, 12)
    assert continuation(backend, prompt, 12, slice_tokens=16) == whole
    assert continuation(backend, prompt, 12, slice_tokens=1) == whole
