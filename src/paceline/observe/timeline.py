"""Where one sequence's time went inside the engine: moments and counts, written by the scheduler as they happen.

The one idea: every moment is given from outside (`now`), so the same record works under a virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Timeline:
    """One sequence's record. Units: seconds of the engine's clock."""

    arrived: float
    first_scheduled: float | None = None
    first_token: float | None = None
    preempted_s: float = 0.0
    preempted_at: float | None = None
    """When the current preemption began, or None while not preempted."""
    steps: int = 0
    cached_tokens: int = 0
    """Prompt tokens that a prefix hit spared at the first admission."""
    recomputed_tokens: int = 0
    """Tokens computed before a preemption and again after it."""
    preemptions: int = 0

    def admitted(self, now: float, num_cached: int, num_lost: int) -> None:
        """The sequence got blocks: `num_cached` tokens by a prefix hit; `num_lost` had been computed before and must be again."""
        if self.first_scheduled is None:
            self.first_scheduled = now
            self.cached_tokens = num_cached
        self.recomputed_tokens += num_lost
        self._end_preemption(now)

    def preempted(self, now: float) -> None:
        """The sequence lost its blocks."""
        self.preemptions += 1
        self.preempted_at = now

    def stepped(self, now: float, has_token: bool) -> None:
        """A step that had a slice of the sequence is over."""
        self.steps += 1
        if has_token and self.first_token is None:
            self.first_token = now

    def finished(self, now: float) -> None:
        """The sequence ended."""
        self._end_preemption(now)

    def _end_preemption(self, now: float) -> None:
        if self.preempted_at is not None:
            self.preempted_s += now - self.preempted_at
            self.preempted_at = None
