"""Who runs first: the order of waiting sequences, and its reverse, the order of preemption.

The one idea: a policy is a sort key. Admission takes the smallest, preemption the largest.
"""

from __future__ import annotations

from typing import Protocol

from paceline.engine.sequence import Sequence


class OrderPolicy(Protocol):
    """Orders sequences."""

    def key(self, seq: Sequence) -> tuple[int, ...]:
        """The sort key, unique per sequence (its last element is `seq.order`), constant over its life."""
        ...

    def outranks(self, seq: Sequence, other: Sequence) -> bool:
        """Whether `seq`, waiting, may take the place of `other`, running."""
        ...


class PriorityOrder:
    """Interactive before batch, then the lower priority, then first come, first served."""

    def key(self, seq: Sequence) -> tuple[int, ...]:
        """See `OrderPolicy.key`."""
        return (seq.request.request_class == "batch", seq.request.priority, seq.order)

    def outranks(self, seq: Sequence, other: Sequence) -> bool:
        """Only a better class or priority takes a place; an earlier arrival alone does not."""
        return seq.key[:2] < other.key[:2]


class ArrivalOrder:
    """First come, first served, whatever the priorities."""

    def key(self, seq: Sequence) -> tuple[int, ...]:
        """See `OrderPolicy.key`."""
        return (seq.order,)

    def outranks(self, seq: Sequence, other: Sequence) -> bool:
        """Nobody takes a place."""
        return False
