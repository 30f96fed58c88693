"""What one step will do, and what came of it. Plain records, rebuilt every step."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.engine.messages import TokenLogprobs
from paceline.engine.sequence import Sequence
from paceline.planner.time_model import Work, work_of


@dataclass(slots=True)
class Slice:
    """Tokens [start, start + num_new) of one sequence; the last `num_rows` of them need logits."""

    sequence: Sequence
    start: int
    num_new: int
    num_rows: int

    @property
    def end(self) -> int:
        """The position after the slice."""
        return self.start + self.num_new


@dataclass(slots=True)
class StepPlan:
    """One step's slices, the block copies to do before it, and the sequences that lost their blocks for it."""

    slices: list[Slice] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, seq: Sequence, num_new: int) -> None:
        """Give a sequence its next `num_new` tokens; rows are the newest accepted token's and the drafts'."""
        end = seq.num_computed + num_new
        self.slices.append(Slice(seq, seq.num_computed, num_new, max(0, end - len(seq.token_ids) + 1)))
        self.num_tokens += num_new

    def work(self) -> Work:
        """What the step costs by."""
        return work_of((piece.start, piece.num_new, piece.num_rows) for piece in self.slices)

    def drop(self, seq: Sequence) -> None:
        """Take a sequence's slice out again (it was preempted for another)."""
        dropped = [piece for piece in self.slices if piece.sequence is seq]
        for piece in dropped:
            self.slices.remove(piece)
            self.num_tokens -= piece.num_new


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a slice's rows brought.

    picks: the accepted drafts, then the first pick that differs (or the bonus): `num_accepted` + 1 tokens.
    """

    sequence: Sequence
    picks: list[int]
    num_accepted: int
    logprobs: list[TokenLogprobs] | None = None
