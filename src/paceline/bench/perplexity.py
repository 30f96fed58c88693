"""`paceline bench perplexity`: how well a model predicts a text, the number by which storage types and kernels are compared.

The one idea: the text is cut into windows of `window` tokens, each computed alone from an empty cache. Every token of a window but
its first is scored with −log p of the row before it; the result is the mean over all scored tokens. A model that wants a BOS
token gets it as each window's first.

A window goes through the backend in slices whose every token is a logits row; a row's bits do not depend on how the window is cut.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from paceline.backends.base import BLOCK_SIZE, F32, Backend, Draws, StepInput
from paceline.bench.report import note
from paceline.config import EngineConfig
from paceline.engine.build import Parts, new_backend, resolve_sizes
from paceline.errors import RequestError
from paceline.formats.open import open_checkpoint
from paceline.planner.machine import read_machine
from paceline.text.tokenizer import load_tokenizer

MIN_WINDOW = 2
MAX_SLICE_ROWS = 64
"""Logits rows of a step: 64 rows of a vocabulary of 262,144 are 64 MiB."""


class PerplexityRow(msgspec.Struct, frozen=True):
    """The result over a whole text. Units: nats."""

    mean_nll: float
    perplexity: float
    standard_error: float | None
    """Of `mean_nll`, from the windows' means; None for a single window."""
    tokens: int
    """Tokens scored."""
    windows: int
    seconds: float


def score_model(path: Path, text: str, config: EngineConfig, window: int, max_windows: int | None) -> PerplexityRow:
    """Load a model and score a text with it, with a pool that holds one window.

    Errors:  NotFoundError, ModelError for the model · RequestError for the text or the window
    """
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    token_ids = tokenizer.encode(text, add_special=False, parse_special=False)
    bos_id = tokenizer.bos_id if tokenizer.vocabulary.adds_bos else None
    if max_windows is not None:
        token_ids = token_ids[: max_windows * (window - (bos_id is not None))]
    config = replace(
        config,
        max_model_len=max(BLOCK_SIZE, window),
        num_blocks=-(-window // BLOCK_SIZE) + 1,
        max_num_batched_tokens=MAX_SLICE_ROWS,
        max_num_seqs=MAX_SLICE_ROWS,
    )
    parts = Parts(checkpoint, has_weights=True)
    backend = new_backend(config, parts, resolve_sizes(config, parts.spec, parts.model, read_machine()), lambda stage, fraction: None)
    try:
        return score_text(backend, token_ids, window=window, slice_rows=MAX_SLICE_ROWS, bos_id=bos_id)
    finally:
        backend.close()


def score_text(backend: Backend, token_ids: list[int], *, window: int, slice_rows: int, bos_id: int | None) -> PerplexityRow:
    """Score a text. `slice_rows` is the most logits rows the backend gives in a step.

    Errors:  RequestError when the text is too short or the window holds nothing to score
    """
    windows = list(cut_windows(token_ids, window, bos_id))
    if not windows:
        raise RequestError(f"The text has {len(token_ids)} tokens; expected at least {MIN_WINDOW}.", param="file")
    started = time.monotonic()
    losses: list[npt.NDArray[np.float64]] = []
    for number, ids in enumerate(windows, 1):
        if number % 8 == 1:
            note(f"window {number} of {len(windows)} …")
        losses.append(window_losses(backend, ids, slice_rows))
    scored = np.concatenate(losses)
    means = np.array([loss.mean() for loss in losses])
    mean = float(scored.mean())
    return PerplexityRow(
        mean_nll=mean,
        perplexity=math.exp(min(mean, 700.0)),
        standard_error=float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else None,
        tokens=len(scored),
        windows=len(windows),
        seconds=time.monotonic() - started,
    )


def cut_windows(token_ids: list[int], window: int, bos_id: int | None) -> Iterator[list[int]]:
    """The windows of a text, in order, BOS first where there is one; a rest too short to score is left out.

    Errors:  RequestError for a window that holds nothing to score
    """
    if window < MIN_WINDOW:
        raise RequestError(f"`window` is {window}; expected {MIN_WINDOW} or more.", param="window")
    head = [] if bos_id is None else [bos_id]
    step = window - len(head)
    for start in range(0, len(token_ids), step):
        ids = head + token_ids[start : start + step]
        if len(ids) >= MIN_WINDOW:
            yield ids


def window_losses(backend: Backend, ids: list[int], slice_rows: int) -> npt.NDArray[np.float64]:
    """−log p of every token but the first, in nats. Shapes: [len(ids) − 1]"""
    losses = []
    for start in range(0, len(ids) - 1, slice_rows):
        end = min(start + slice_rows, len(ids) - 1)
        output = backend.forward(slice_step(ids, start, end))
        assert output.logits is not None, "the step asked for logits"
        losses.append(nll(output.logits, np.array(ids[start + 1 : end + 1])))
    return np.concatenate(losses)


def nll(logits: F32, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """−log softmax(logits) at the targets, in float64. Shapes: [R, V], [R] → [R]"""
    wide = logits.astype(np.float64)
    top = wide.max(axis=1)
    log_sum = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
    result: npt.NDArray[np.float64] = log_sum - wide[np.arange(len(targets)), targets]
    return result


def slice_step(ids: list[int], start: int, end: int) -> StepInput:
    """A step that computes tokens `start` to `end` of the only sequence, a logits row for each; it lies in blocks 1, 2, …"""
    num_rows = end - start
    num_blocks = -(-end // BLOCK_SIZE)
    zeros = np.zeros(num_rows, np.float32)
    return StepInput(
        token_ids=np.array(ids[start:end], np.int32),
        positions=np.arange(start, end, dtype=np.int32),
        slice_starts=np.array([0, num_rows], np.int32),
        context_lens=np.array([end], np.int32),
        block_tables=np.arange(1, num_blocks + 1, dtype=np.int32).reshape(1, 1, num_blocks),
        row_indices=np.arange(num_rows, dtype=np.int32),
        draws=Draws(
            temperature=zeros,
            top_k=np.zeros(num_rows, np.int32),
            top_p=np.ones(num_rows, np.float32),
            min_p=zeros,
            seeds=np.zeros(num_rows, np.uint64),
            seq_indices=np.zeros(num_rows, np.int32),
            positions=np.arange(start + 1, end + 1, dtype=np.int32),
        ),
        copies=np.zeros((0, 2), np.int32),
        needs_logits=True,
    )
