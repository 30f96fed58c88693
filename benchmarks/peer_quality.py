"""Is Paceline as close to the weights' meaning as llama.cpp is? Both against the same float32 reference, on the same tokens.

    python -m benchmarks.peer_quality [MODEL.gguf …] [--threads N] [--windows N] [--flash on|off]

The one idea: the measure is `benchmarks.quality`'s, and each window of the reference is computed once for both. llama.cpp gets the token
ids, so that only its arithmetic is judged: its 8-bit activations, float16 cache and order of sums.

Prints one JSON object; exits with 1 when our mean KL exceeds llama.cpp's by more than `MAX_RATIO`. llama.cpp is installed into the cache
at first (see docs/guides/compare.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.models import PROOF_MODELS, proof_model
from benchmarks.oracle import load_oracle
from benchmarks.peers.llama_logits import LlamaLogits
from benchmarks.quality import WINDOW, Judged, compare_hidden, make_backend
from benchmarks.real_texts import real_texts
from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.formats.open import open_checkpoint
from paceline.models.load import load_model
from paceline.planner.machine import read_machine
from paceline.text.tokenizer import load_tokenizer

MAX_RATIO = 1.05


@dataclass(frozen=True, slots=True)
class Side:
    """One engine against the reference. Units: nats; `top1` is the share of positions with the same likeliest token."""

    engine: str
    mean_kl: float
    worst_kl: float
    top1: float
    nll: float


@dataclass(frozen=True, slots=True)
class PeerQuality:
    """Both engines on one model."""

    model: str
    positions: int
    oracle_nll: float
    ours: Side
    peer: Side
    kl_ratio: float
    max_ratio: float
    seconds: float

    @property
    def is_within_limits(self) -> bool:
        """Whether ours is close enough."""
        return self.kl_ratio <= self.max_ratio


def measure(path: Path, *, threads: int, num_windows: int | None, flash: bool) -> PeerQuality:
    """Compare both engines with the reference on windows of real text."""
    started = time.monotonic()
    checkpoint = open_checkpoint(path)
    model = load_model(checkpoint)
    tokenizer = load_tokenizer(checkpoint)
    windows = [tokenizer.encode(text.content, add_special=True, parse_special=False)[:WINDOW] for text in real_texts()][:num_windows]
    oracle = load_oracle(checkpoint, model.spec)
    backends: list[Judged] = [
        make_backend(model, "native", threads),
        LlamaLogits(LlamaCpp.in_cache(), path, threads=threads, context=WINDOW, flash=flash),
    ]
    rows: list[list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]] = [[], []]
    for window in windows:
        with torch.inference_mode():
            hidden = oracle.model(torch.tensor([window])).last_hidden_state[0]
        for found, backend in zip(rows, backends, strict=True):
            found.append(compare_hidden(oracle, hidden, backend, window))
    joined = [np.concatenate(found) for found in rows]
    ours, peer = (side(backend.name, found) for backend, found in zip(backends, joined, strict=True))
    for backend in backends:
        backend.close()
    return PeerQuality(
        model=path.name,
        positions=len(joined[0]),
        oracle_nll=float(np.nanmean(joined[0][:, 2])),
        ours=ours,
        peer=peer,
        kl_ratio=ours.mean_kl / peer.mean_kl,
        max_ratio=MAX_RATIO,
        seconds=round(time.monotonic() - started, 1),
    )


def side(engine: str, rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Side:
    """What the rows of `compare_hidden` say of an engine."""
    kl, same, _, nll = rows.T
    return Side(engine, float(kl.mean()), float(kl.max()), float(same.mean()), float(np.nanmean(nll)))


def main(arguments: Sequence[str]) -> int:
    """Measure the named models, or the proof models, and print the result; 1 when one misses the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_quality", description="Our quality beside llama.cpp's.")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=read_machine().num_cores)
    parser.add_argument("--windows", type=int, help="fewer windows than there are texts")
    parser.add_argument("--flash", choices=("on", "off"), default="on", help="llama.cpp's flash attention")
    options = parser.parse_args(arguments)
    LlamaCpp.in_cache().install()
    found = []
    for path in options.models or [proof_model(name) for name in PROOF_MODELS]:
        quality = measure(path, threads=options.threads, num_windows=options.windows, flash=options.flash == "on")
        found.append(quality)
        figures = f"ours {quality.ours.mean_kl:.5f}, llama.cpp {quality.peer.mean_kl:.5f}, ratio {quality.kl_ratio:.3f}"
        print(f"{quality.model}: KL {figures}", file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "peer_quality", "rows": [asdict(quality) for quality in found]}, indent=2))
    return 0 if all(quality.is_within_limits for quality in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
