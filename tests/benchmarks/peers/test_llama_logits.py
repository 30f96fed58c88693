"""The talk with the program that computes llama.cpp's logits: tokens and positions arrive, rows come back in order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers import llama_logits
from benchmarks.peers.llama_logits import LlamaLogits
from benchmarks.quality import window_step
from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.errors import EngineError

VOCAB_SIZE = 5
PROGRAM = f"""#!{sys.executable}
import struct, sys
out = sys.stdout.buffer
out.write(struct.pack("<i", {VOCAB_SIZE})); out.flush()
while head := sys.stdin.buffer.read(8):
    start, count = struct.unpack("<2i", head)
    ids = struct.unpack(f"<{{count}}i", sys.stdin.buffer.read(4 * count))
    if 99 in ids: sys.exit(3)
    for place, token_id in enumerate(ids):
        out.write(struct.pack("<5f", start, place, token_id, len(sys.argv), float(sys.argv[3])))
    out.flush()
"""
"""Answers each token with its start, place and id, how many arguments there were, and the context."""


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LlamaLogits:
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(llama_logits, "build", lambda peer: program)
    return LlamaLogits(LlamaCpp(tmp_path), Path("m.gguf"), threads=2, context=64)


def test_rows_come_back_for_each_token_of_each_step(judged: LlamaLogits) -> None:
    first, second = judged.forward(window_step([7, 8, 9], 0)), judged.forward(window_step([10, 11], 3))
    judged.close()
    assert first.logits is not None
    assert second.logits is not None
    assert first.logits.tolist() == [[0, place, 7 + place, 5, 64] for place in range(3)]
    assert second.logits.tolist() == [[3, place, 10 + place, 5, 64] for place in range(2)]


def test_program_that_ends_is_an_error_with_its_status(judged: LlamaLogits) -> None:
    with pytest.raises(EngineError, match="status 3"):
        judged.forward(window_step([99], 0))
    judged.close()
