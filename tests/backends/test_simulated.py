"""The hash backend notices wrong memory; the scripted one says its script."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.backends.base import Draws, PoolShape, StepInput
from paceline.backends.null import NullBackend
from paceline.backends.simulated import HashBackend, Script, ScriptedBackend, load_scripts
from paceline.errors import RequestError

POOL = PoolShape(num_blocks=6, max_blocks_per_seq=4)


def step_of(
    tokens: list[int], start: int = 0, table: tuple[int, ...] = (1, 2), *, seed: int = 0, copies: tuple[tuple[int, int], ...] = ()
) -> StepInput:
    """One slice of one sequence with a row at its end."""
    end = start + len(tokens)
    zeros, ones, whole = np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros(1, np.int32)
    return StepInput(
        token_ids=np.array(tokens, np.int32),
        positions=np.arange(start, end, dtype=np.int32),
        slice_starts=np.array([0, len(tokens)], np.int32),
        context_lens=np.array([end], np.int32),
        block_tables=np.array([[table]], np.int32),
        row_indices=np.array([len(tokens) - 1], np.int32),
        draws=Draws(zeros, whole, ones, zeros, np.array([seed], np.uint64), whole, np.array([end], np.int32)),
        copies=np.array(copies, np.int32).reshape(-1, 2),
        needs_logits=True,
    )


def logits_of(backend: HashBackend, step: StepInput) -> list[float]:
    """The row of a one-row step."""
    logits = backend.forward(step).logits
    assert logits is not None
    row: list[float] = logits[0].tolist()
    return row


def test_slices_and_other_blocks_change_nothing() -> None:
    tokens = list(range(20))
    whole = logits_of(HashBackend(50, POOL), step_of(tokens))
    sliced = HashBackend(50, POOL)
    sliced.forward(step_of(tokens[:7], table=(4, 3)))
    assert logits_of(sliced, step_of(tokens[7:], start=7, table=(4, 3))) == whole
    alone = HashBackend(50, POOL)
    assert alone.context_logits(sum(alone.term(token, position) for position, token in enumerate(tokens))).tolist() == whole


@pytest.mark.parametrize("table", [(2, 1), (1, 3), (3, 2)], ids=["swapped", "wrong_tail", "wrong_head"])
def test_a_wrong_block_changes_the_output(table: tuple[int, ...]) -> None:
    backend = HashBackend(50, POOL)
    tokens = [7] * 20
    backend.forward(step_of(tokens))
    expected = logits_of(backend, step_of([9], start=20))
    assert logits_of(backend, step_of([9], start=20, table=table)) != expected


def test_copies_are_done_first() -> None:
    backend = HashBackend(50, POOL)
    backend.forward(step_of(list(range(20))))
    expected = logits_of(backend, step_of([9], start=20))
    assert logits_of(backend, step_of([9], start=20, table=(1, 4), copies=((2, 4),))) == expected


def test_a_script_is_said_token_by_token_and_then_ends() -> None:
    backend = ScriptedBackend(50, POOL, [Script((5, 6))], eos_id=2)
    said, tokens = [], [1]
    for start in range(3):
        (token,) = backend.forward(step_of(tokens[start:], start=start)).picks.tolist()
        said.append(token)
        tokens.append(token)
    assert said == [5, 6, 2]


def test_scripts_go_by_marker_then_by_turn() -> None:
    backend = ScriptedBackend(50, POOL, [Script((5,)), Script((6,)), Script((7,), marker=(8, 9))], eos_id=2)
    prompts = [[1, 1], [1, 8, 9], [1, 2], [1, 3], [9, 8]]
    said = [backend.forward(step_of(prompt, seed=seed)).picks.tolist()[0] for seed, prompt in enumerate(prompts)]
    assert said == [5, 7, 6, 5, 6]


def test_a_script_file_holds_lists_and_marked_lists(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([[1, 2], {"tokens": [3], "prompt_contains_ids": [4]}]))
    assert load_scripts(path) == (Script((1, 2)), Script((3,), marker=(4,)))


@pytest.mark.parametrize("text", ["", "{", "5", '[{"token": []}]', '["a"]'])
def test_a_file_that_is_no_script_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(RequestError, match="is no script"):
        load_scripts(path)


def test_the_null_backend_follows_its_pattern() -> None:
    output = NullBackend(50, (3, 4)).forward(step_of([1, 1, 1]))
    assert output.logits is not None
    assert (output.picks.tolist(), output.logits.argmax(axis=1).tolist()) == ([4], [4])
