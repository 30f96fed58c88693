"""A backend that computes nothing: every pick follows a fixed pattern. For timing the engine around it.

Pick of a row = pattern[position of the picked token mod length].
"""

from __future__ import annotations

import numpy as np

from paceline.backends.base import F32, I32, Draws, StepInput, StepOutput


class NullBackend:
    """Answers at once; its logits have 1 at the pattern's token and 0 elsewhere."""

    def __init__(self, vocab_size: int, pattern: tuple[int, ...] = (0,)) -> None:
        assert pattern, "the pattern has at least one token"
        assert all(0 <= token_id < vocab_size for token_id in pattern), "the pattern's tokens are in the vocabulary"
        self._vocab_size = vocab_size
        self._pattern = np.array(pattern, np.int32)

    @property
    def name(self) -> str:
        """See `Backend.name`."""
        return "null"

    @property
    def numerics(self) -> str:
        """See `Backend.numerics`."""
        return "null:1"

    @property
    def vocab_size(self) -> int:
        """See `Backend.vocab_size`."""
        return self._vocab_size

    @property
    def kv_bytes_per_block(self) -> int:
        """Nothing is stored."""
        return 0

    def forward(self, step: StepInput) -> StepOutput:
        """See `Backend.forward`."""
        picks = self._pattern[step.draws.positions % len(self._pattern)]
        if not step.needs_logits:
            return StepOutput(picks, None)
        logits = np.zeros((len(picks), self._vocab_size), np.float32)
        logits[np.arange(len(picks)), picks] = 1.0
        return StepOutput(picks, logits)

    def pick(self, logits: F32, draws: Draws) -> I32:
        """The argmax, whatever the draws."""
        picks: I32 = logits.argmax(axis=1).astype(np.int32)
        return picks

    def close(self) -> None:
        """Nothing to give back."""
