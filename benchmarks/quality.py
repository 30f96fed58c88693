"""Does a backend say what the weights mean? Next-token distributions against transformers in float32, on real texts.

    python -m benchmarks.quality [MODEL.gguf …] [--backend native|reference] [--kv-cache-dtype int16|int8] [--threads N] [--windows N]

The one idea: quantised weights are taken as given (the oracle has the same ones, dequantised), so what is measured is the engine
alone: its int8 activations, integer keys and values, order of sums, and its bugs.

Ten windows of 512 tokens, one per text, 5,120 positions. Prints one JSON object; exits with 1 when a model misses its limits.
Without arguments it takes the four proof models from the model cache, and brings those that are missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from benchmarks.models import PROOF_MODELS, proof_model
from benchmarks.oracle import load_oracle
from benchmarks.real_texts import real_texts
from paceline.backends.base import BLOCK_SIZE, Backend, Draws, KvDtype, PoolShape, StepInput, StepOutput
from paceline.backends.native.backend import NativeBackend
from paceline.backends.reference import ReferenceBackend
from paceline.formats.open import open_checkpoint
from paceline.models.load import Model, load_model
from paceline.text.tokenizer import load_tokenizer

WINDOW = 512
PIECE = 128
"""Positions compared at a time: 128 rows of Gemma's vocabulary are 134 MB, a whole window's would be 537."""


class Judged(Protocol):
    """The part of a backend that a quality run uses."""

    @property
    def name(self) -> str:
        """As results spell it."""
        ...

    def forward(self, step: StepInput) -> StepOutput:
        """A step's logits rows."""
        ...

    def close(self) -> None:
        """Let go of the model."""
        ...


BackendName = Literal["native", "reference"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a family must reach."""

    max_kl: float
    min_top1: float


LIMITS = {"llama": Limits(0.008, 0.96), "gemma3": Limits(0.008, 0.96), "qwen2": Limits(0.003, 0.98)}


@dataclass(frozen=True, slots=True)
class Quality:
    """How close a backend's next-token distributions are to the oracle's.

    Units:  `mean_kl` and `worst_kl` in nats, KL(oracle ‖ backend) · `top1` the share of positions with the same likeliest token ·
            `oracle_nll` and `nll` in nats per token, of the texts themselves
    """

    model: str
    backend: str
    positions: int
    mean_kl: float
    worst_kl: float
    top1: float
    oracle_nll: float
    nll: float
    max_kl: float
    min_top1: float
    seconds: float

    @property
    def is_within_limits(self) -> bool:
        """Whether the family's limits are kept."""
        return self.mean_kl <= self.max_kl and self.top1 >= self.min_top1


def measure(
    path: Path,
    *,
    backend: BackendName = "native",
    kv_dtype: KvDtype = "int16",
    threads: int | None = None,
    num_windows: int | None = None,
) -> Quality:
    """Compare a backend with the oracle on windows of real text."""
    started = time.monotonic()
    checkpoint = open_checkpoint(path)
    model = load_model(checkpoint)
    tokenizer = load_tokenizer(checkpoint)
    texts = list(real_texts())[:num_windows]
    windows = [tokenizer.encode(text.content, add_special=True, parse_special=False)[:WINDOW] for text in texts]
    assert all(len(window) == WINDOW for window in windows), "every text fills a window"
    oracle = load_oracle(checkpoint, model.spec)
    runner = make_backend(model, backend, threads, kv_dtype)
    rows = np.concatenate([compare_window(oracle, runner, window) for window in windows])
    name = runner.name
    runner.close()
    limits = LIMITS[model.spec.family]
    kl, same, oracle_nll, nll = rows.T
    return Quality(
        model=path.name,
        backend=name,
        positions=len(rows),
        mean_kl=float(kl.mean()),
        worst_kl=float(kl.max()),
        top1=float(same.mean()),
        oracle_nll=float(np.nanmean(oracle_nll)),
        nll=float(np.nanmean(nll)),
        max_kl=limits.max_kl,
        min_top1=limits.min_top1,
        seconds=round(time.monotonic() - started, 1),
    )


def make_backend(model: Model, name: BackendName, threads: int | None, kv_dtype: KvDtype = "int16") -> Backend:
    """The backend under test, with room for one window."""
    num_blocks = WINDOW // BLOCK_SIZE
    pool = PoolShape(num_blocks + 1, num_blocks)
    if name == "reference":
        return ReferenceBackend(model, pool)
    return NativeBackend(model, pool, threads=threads, kv_dtype=kv_dtype, max_tokens=PIECE, max_rows=PIECE)


def compare_window(oracle: Any, backend: Backend, window: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Per position: KL, whether the likeliest token is the same, and both negative log-likelihoods of the next token.

    Shapes:  → [512, 4]; the last position has no next token, its likelihoods are NaN
    """
    with torch.inference_mode():
        hidden = oracle.model(torch.tensor([window])).last_hidden_state[0]
    return compare_hidden(oracle, hidden, backend, window)


def compare_hidden(
    oracle: Any, hidden: torch.Tensor, backend: Judged, window: Sequence[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """`compare_window` when the oracle's last hidden states of the window are known already. Shapes: hidden [512, E] → [512, 4]"""
    with torch.inference_mode():
        pieces = [
            compare_rows(oracle.lm_head(hidden[start : start + PIECE]), ours, window[start + 1 : start + 1 + PIECE])
            for start, ours in backend_logits(backend, window)
        ]
    return np.concatenate(pieces)


def backend_logits(backend: Judged, window: Sequence[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """Where each piece starts, and its logits [128, V]."""
    for start in range(0, len(window), PIECE):
        logits = backend.forward(window_step(window[start : start + PIECE], start)).logits
        assert logits is not None
        yield start, torch.from_numpy(logits.copy())


def window_step(token_ids: Sequence[int], start: int) -> StepInput:
    """A step that computes some tokens of the one sequence, each a logits row."""
    num_tokens, zeros = len(token_ids), np.zeros(len(token_ids), np.float32)
    integers = np.zeros(num_tokens, np.int32)
    return StepInput(
        token_ids=np.array(token_ids, np.int32),
        positions=np.arange(start, start + num_tokens, dtype=np.int32),
        slice_starts=np.array([0, num_tokens], np.int32),
        context_lens=np.array([start + num_tokens], np.int32),
        block_tables=np.arange(1, WINDOW // BLOCK_SIZE + 1, dtype=np.int32)[None, None],
        row_indices=np.arange(num_tokens, dtype=np.int32),
        draws=Draws(zeros, integers, zeros + 1, zeros, np.zeros(num_tokens, np.uint64), integers, integers),
        copies=np.zeros((0, 2), np.int32),
        needs_logits=True,
    )


def compare_rows(
    expected: torch.Tensor, found: torch.Tensor, following: Sequence[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """`compare_window` for some rows of logits; `following` lacks the last token's where the window ends. Shapes: [n, V] both → [n, 4]"""
    # Float32 keeps a log-probability to 1e-6, a thousandth of the smallest limit
    p, q = (torch.log_softmax(logits, dim=-1) for logits in (expected, found))
    likelihoods = torch.full((2, len(p)), float("nan"), dtype=torch.float64)
    known = torch.arange(len(following))
    for row, logs in enumerate((p, q)):
        likelihoods[row, : len(following)] = -logs[known, torch.tensor(following)].double()
    same = (p.argmax(dim=-1) == q.argmax(dim=-1)).double()
    kl = (p.exp() * (p - q)).sum(dim=-1, dtype=torch.float64)
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]] = torch.stack([kl, same, *likelihoods], dim=1).numpy()
    return rows


def main(arguments: Sequence[str]) -> int:
    """Measure the named models and print the result; 1 when one misses its limits."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--backend", choices=("native", "reference"), default="native")
    parser.add_argument("--kv-cache-dtype", choices=("int16", "int8"), default="int16", help="of the native backend")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--windows", type=int, help="fewer windows than there are texts")
    options = parser.parse_args(arguments)
    found = []
    for path in options.models or (proof_model(name) for name in PROOF_MODELS):
        dtype, threads, windows = options.kv_cache_dtype, options.threads, options.windows
        quality = measure(path, backend=options.backend, kv_dtype=dtype, threads=threads, num_windows=windows)
        found.append(quality)
        print(f"{quality.model}: KL {quality.mean_kl:.5f}, top-1 {quality.top1:.2%}", file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "quality", "rows": [asdict(quality) for quality in found]}, indent=2))
    return 0 if all(quality.is_within_limits for quality in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
