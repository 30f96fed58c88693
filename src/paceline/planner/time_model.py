"""T(step): how long a step takes, as a function of its work; learned from the engine's own steps.

    seconds = w · [1, T, max(0, T − n*), Σ prefill·context, Σ decode context, S, R]          w ≥ 0

The one idea: one model, fitted while running, behind every decision that needs a cost. A step reads all weights once (the
constant); up to n* tokens they cost little more, beyond it each token costs its arithmetic; attention adds what it reads.
Relative errors count, so a decode of three milliseconds is fitted as well as a prefill of a hundred. Old steps fade.

No clock: durations are given. Before the first steps it answers from a `Prior`.

Source: Lawson & Hanson 1974, "Solving Least Squares Problems", ch. 23 (non-negative least squares on the normal equations).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

KNEES = (2, 4, 8, 16, 32, 64)
"""Candidates for n*, the tokens from which on arithmetic binds."""
NUM_FEATURES = 7
UNITS = np.array([1.0, 10.0, 10.0, 1e5, 1e4, 10.0, 10.0])
"""What a feature is divided by in the normal equations, to keep them well conditioned."""
FADE = 0.999
"""Weight that a step keeps when the next one comes: half after 693 steps."""
SOLVE_EVERY = 32
CHOOSE_EVERY = 256
"""Steps between two choices of n*."""
PRIOR_STEPS = 4.0
"""How many steps the prior weighs as much as."""
NUM_RATIOS = 1024
"""Last steps whose measured / predicted give the error bands."""
OUTLIER = 3.0
"""A step that took so many times the prediction was interrupted by something else; it counts as one that took just so many times."""


class Work(NamedTuple):
    """What a step costs by. Sums over its slices; add two to ask what both would cost."""

    num_tokens: int = 0
    prefill: int = 0
    """Σ over slices of several tokens: tokens × mean context."""
    decode_context: int = 0
    """Σ over slices of one token: its context."""
    num_slices: int = 0
    num_rows: int = 0

    def plus(self, start: int, num_new: int, num_rows: int) -> Work:
        """This work and a slice of `num_new` tokens after `start` computed ones, `num_rows` of them with logits."""
        is_decode = num_new == 1
        return Work(
            self.num_tokens + num_new,
            self.prefill + (0 if is_decode else num_new * start + num_new * (num_new + 1) // 2),
            self.decode_context + (start + 1 if is_decode else 0),
            self.num_slices + 1,
            self.num_rows + num_rows,
        )


def work_of(slices: Iterable[tuple[int, int, int]]) -> Work:
    """The work of a step from its slices' (start, new tokens, rows)."""
    work = Work()
    for start, num_new, num_rows in slices:
        work = work.plus(start, num_new, num_rows)
    return work


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before anything was measured. Units: seconds, per feature."""

    constant: float = 3e-3
    token: float = 2e-4
    attention: float = 1e-9
    """Per pair of a query and a key position over all layers."""

    @property
    def weights(self) -> tuple[float, ...]:
        """In the order of the features, for the smallest n*: tokens cost their arithmetic from there on."""
        return (self.constant, self.token / 10, self.token * 0.9, self.attention, self.attention, 0.0, 0.0)


class TimeModel:
    """See the module. Deterministic: the same observations give the same answers."""

    def __init__(self, prior: Prior | None = None) -> None:
        prior_weights = np.array((prior or Prior()).weights) * UNITS
        typical = 1.0 / max(float(prior_weights[0]), 1e-6)
        self._ridge = np.diag(np.full(NUM_FEATURES, PRIOR_STEPS * typical**2))
        self._pull = self._ridge @ prior_weights
        self._products = np.zeros((len(KNEES), NUM_FEATURES, NUM_FEATURES))
        self._targets = np.zeros((len(KNEES), NUM_FEATURES))
        self._mass = 0.0
        self._pending: list[tuple[Work, float, float]] = []
        self._knee = 0
        self._weights: tuple[float, ...] = tuple((prior_weights / UNITS).tolist())
        self._ratios: deque[float] = deque(maxlen=NUM_RATIOS)
        self._sorted_ratios: list[float] = []
        self.num_steps = 0

    @property
    def knee(self) -> int:
        """n*."""
        return KNEES[self._knee]

    @property
    def weights(self) -> tuple[float, ...]:
        """Seconds per unit of each feature, in the order of the module's formula."""
        return self._weights

    def predict(self, work: Work) -> float:
        """Seconds that a step of this work takes, in the middle case."""
        w = self._weights
        tokens = work.num_tokens
        return (
            w[0]
            + w[1] * tokens
            + w[2] * max(0, tokens - KNEES[self._knee])
            + w[3] * work.prefill
            + w[4] * work.decode_context
            + w[5] * work.num_slices
            + w[6] * work.num_rows
        )

    def quantile(self, share: float) -> float:
        """The factor on `predict` that so large a share of the last steps stayed within; 1 before any were seen."""
        if not self._sorted_ratios:
            return 1.0
        return self._sorted_ratios[min(len(self._sorted_ratios) - 1, int(share * len(self._sorted_ratios)))]

    def observe(self, work: Work, seconds: float) -> None:
        """Learn from a step that took so long; steps of a virtual clock that take no time teach nothing."""
        predicted = self.predict(work)
        if seconds <= 0.0 or predicted <= 0.0:
            return
        self._remember_ratio(seconds / predicted)
        if self.num_steps > NUM_FEATURES * 4:
            seconds = min(seconds, OUTLIER * predicted)
        scale = min(max(predicted, seconds / OUTLIER), seconds * OUTLIER)  # not the measured time: that would pull the fit low
        self._pending.append((work, scale, seconds / scale))
        self.num_steps += 1
        if self.num_steps % SOLVE_EVERY == 0 or self.num_steps in (1, 2, 4, 8, 16):
            self._fold()
            if self.num_steps % CHOOSE_EVERY == 0:
                self._knee = min(range(len(KNEES)), key=self._misfit)
            self._weights = tuple((self._solve(self._knee) / UNITS).tolist())

    def state(self) -> dict[str, object]:
        """Everything learned, as plain numbers and lists."""
        self._fold()
        return {
            "num_steps": self.num_steps,
            "mass": self._mass,
            "knee": self._knee,
            "products": self._products.tolist(),
            "targets": self._targets.tolist(),
            "ratios": list(self._ratios),
        }

    def restore(self, state: dict[str, object]) -> None:
        """Continue from a `state`. Errors: ValueError, KeyError or TypeError when it is none."""
        products, targets = np.array(state["products"], float), np.array(state["targets"], float)
        knee, num_steps, mass = int(str(state["knee"])), int(str(state["num_steps"])), float(str(state["mass"]))
        ratios = np.array(state["ratios"], float)
        if products.shape != self._products.shape or targets.shape != self._targets.shape or ratios.ndim != 1:
            raise ValueError("the arrays have other shapes")
        if not (np.isfinite(products).all() and np.isfinite(targets).all() and np.isfinite(ratios).all() and 0 <= knee < len(KNEES)):
            raise ValueError("a number is out of range")
        self._products, self._targets, self._knee, self.num_steps, self._mass = products, targets, knee, num_steps, mass
        self._ratios = deque(ratios.tolist(), maxlen=NUM_RATIOS)
        self._sorted_ratios = sorted(self._ratios)
        self._weights = tuple((self._solve(self._knee) / UNITS).tolist())

    def _remember_ratio(self, ratio: float) -> None:
        if len(self._ratios) == NUM_RATIOS:
            self._sorted_ratios.remove(self._ratios[0])
        self._ratios.append(ratio)
        insort(self._sorted_ratios, ratio)

    def _fold(self) -> None:
        """Take the steps since the last time into the normal equations, the older ones faded."""
        if not self._pending:
            return
        works, scales, wanted = zip(*self._pending, strict=True)
        self._pending = []
        fading = FADE ** np.arange(len(works) - 1, -1, -1.0)
        rows = _features(works) / (UNITS * np.array(scales)[:, None])
        targets, keeps = np.array(wanted), FADE ** len(works)
        faded = rows * fading[:, None]
        self._products = self._products * keeps + faded.transpose(0, 2, 1) @ rows
        self._targets = self._targets * keeps + targets @ faded
        self._mass = self._mass * keeps + float(fading @ targets**2)

    def _solve(self, knee: int) -> F64:
        return non_negative_least_squares(self._products[knee] + self._ridge, self._targets[knee] + self._pull)

    def _misfit(self, knee: int) -> float:
        """Σ of squared relative errors under the best weights for this n*."""
        w = self._solve(knee)
        return float(w @ self._products[knee] @ w - 2 * (w @ self._targets[knee]) + self._mass)


def _features(works: Sequence[Work]) -> F64:
    """The features of steps under every candidate of n*. Shapes: [N] → [KNEES, N, NUM_FEATURES]"""
    facts = np.array(works, float)
    table = np.empty((len(KNEES), len(works), NUM_FEATURES))
    table[:, :, 0] = 1.0
    table[:, :, 1] = facts[:, 0]
    table[:, :, 2] = np.maximum(0.0, facts[:, 0] - np.array(KNEES)[:, None])
    table[:, :, 3:] = facts[:, 1:]
    return table


def non_negative_least_squares(products: F64, targets: F64) -> F64:
    """argmin over w ≥ 0 of wᵀ·products·w − 2·w·targets; `products` is positive definite. Shapes: [F, F], [F] → [F]"""
    size = len(targets)
    w, is_free = np.zeros(size), np.zeros(size, bool)
    for _ in range(3 * size):
        gradient = targets - products @ w
        gradient[is_free] = -np.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= 1e-12 * max(1.0, float(np.abs(targets).max())):
            break
        is_free[best] = True
        w = _within_bounds(products, targets, w, is_free)
    return w


def _within_bounds(products: F64, targets: F64, w: F64, is_free: npt.NDArray[np.bool_]) -> F64:
    """Solve for the free weights, stepping back to the bound (and fixing there) while one would turn negative."""
    while True:
        goal = np.zeros(len(w))
        goal[is_free] = np.linalg.solve(products[np.ix_(is_free, is_free)], targets[is_free])
        is_negative = is_free & (goal <= 0.0)
        if not is_negative.any():
            return goal
        steps = w[is_negative] / np.maximum(w[is_negative] - goal[is_negative], 1e-300)
        w = w + float(steps.min()) * (goal - w)
        is_free &= ~(is_negative & (w <= 1e-300 + 1e-12 * np.abs(goal)))
        w[~is_free] = 0.0
