"""llama.cpp as a backend of a quality run: the logits of given tokens, through a small program built against its library.

The one idea: what is compared is the same tokens at the same positions, so llama.cpp's own tokenizer and tools take no part.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from paceline.backends.base import StepInput, StepOutput
from paceline.bench.compare.child import run_program
from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.errors import EngineError

SOURCE = Path(__file__).with_suffix(".cpp")


class LlamaLogits:
    """llama.cpp with one model and one sequence of up to `context` tokens, behind the part of `Backend` that a quality run uses."""

    def __init__(self, peer: LlamaCpp, model: Path, *, threads: int, context: int, flash: bool = True) -> None:
        self.name = f"{peer.name} {peer.version}"
        command = [str(word) for word in (build(peer), model, threads, context, int(flash))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.vocab_size = int(self._read(1, np.dtype(np.int32))[0])

    def forward(self, step: StepInput) -> StepOutput:
        """Logits of every token of a step with the one sequence, whose positions go on from the last step's or begin at 0."""
        assert self._process.stdin is not None
        head = np.array([step.positions[0], len(step.token_ids)], np.int32)
        self._process.stdin.write(head.tobytes() + step.token_ids.tobytes())
        self._process.stdin.flush()
        logits = self._read(len(step.token_ids) * self.vocab_size, np.dtype(np.float32)).reshape(-1, self.vocab_size)
        return StepOutput(picks=logits.argmax(axis=1).astype(np.int32), logits=logits)

    def close(self) -> None:
        """End the program."""
        self._process.communicate()

    def _read(self, count: int, dtype: np.dtype[np.generic]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count * dtype.itemsize)
        if len(content) < count * dtype.itemsize:
            raise EngineError(f"{self.name} ended with status {self._process.wait()} instead of giving logits.")
        values: np.ndarray[tuple[int], np.dtype[np.float32]] = np.frombuffer(content, dtype)
        return values


def build(peer: LlamaCpp) -> Path:
    """The program, built once into the peer's folder. Errors: EngineError when it does not compile"""
    program = peer.folder / "llama-logits"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        libraries = peer.program(".")
        headers = [f"-I{peer.source / folder}" for folder in ("include", "ggml/include")]
        link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama", "-lggml", "-lggml-base"]
        run_program(["g++", "-std=c++17", "-O2", *headers, SOURCE, *link, "-o", program])
    return program
