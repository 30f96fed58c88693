"""Pick tokens from logits by `Draws`: the NumPy reference that every backend's arithmetic is measured against.

The one idea: a draw is the argmax of log p + Gumbel noise (Gumbel-max), and the noise of a token is a pure function of
(seed, sequence index, position, token id). So a pick never depends on when, where or beside whom its row was computed.

It applies no penalties or biases: those are processors, and have changed the logits before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.backends.base import F32, I32, Draws

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

GREEDY_BELOW = 1e-6
"""A temperature below this means argmax."""

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW_32 = np.uint64(0xFFFFFFFF)


def pick(logits: F32, draws: Draws) -> I32:
    """One token id per row; −inf is never picked while anything else is there; ties take the lowest id.

    Shapes:  [R, V] → [R]
    """
    picks = [pick_row(logits[row].astype(np.float64), draws, row) for row in range(len(logits))]
    return np.array(picks, np.int32)


def pick_row(logits: F64, draws: Draws, row: int) -> int:
    """The pick of one row. Shapes: logits [V]"""
    if draws.temperature[row] < GREEDY_BELOW:
        return int(logits.argmax())
    scaled = logits / float(draws.temperature[row])
    kept = keep(scaled, float(draws.min_p[row]), int(draws.top_k[row]), float(draws.top_p[row]))
    noise = gumbel(int(draws.seeds[row]), int(draws.seq_indices[row]), int(draws.positions[row]), len(logits))
    return int(np.where(kept, scaled + noise, -np.inf).argmax())


def keep(scaled: F64, min_p: float, top_k: int, top_p: float) -> Mask:
    """Which tokens the filters leave; never none. Ties at a border keep the lower ids.

    min_p keeps what is at least min_p times as likely as the likeliest; top_k the k likeliest of these; top_p the smallest
    set of the likeliest of these whose mass is at least top_p. Probabilities are those after temperature, over all tokens:
    a filter does not renormalise for the next.
    Shapes:  scaled [V] → [V]
    """
    peak = scaled.max()
    weights = np.exp(scaled - peak) if np.isfinite(peak) else np.ones_like(scaled)
    kept = (weights >= min_p) & (weights > 0.0)
    if top_k <= 0 and top_p >= 1.0:
        return kept
    order = np.argsort(-scaled, kind="stable")
    order = order[kept[order]]
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1.0:
        mass = np.cumsum(weights[order]) / weights.sum()
        order = order[: int(np.searchsorted(mass, top_p)) + 1]
    kept = np.zeros_like(kept)
    kept[order] = True
    return kept


def gumbel(seed: int, seq_index: int, position: int, vocab_size: int) -> F64:
    """The noise of every token at one position: −log(−log(u)). Shapes: → [V]"""
    counters = np.zeros((-(-vocab_size // 4), 4), np.uint32)
    counters[:, 0] = np.arange(len(counters))
    counters[:, 1] = position
    counters[:, 2] = seq_index
    words = philox(counters, (seed & 0xFFFFFFFF, seed >> 32)).reshape(-1)[:vocab_size]
    noise: F64 = -np.log(-np.log((words + 0.5) * 2.0**-32))
    return noise


def philox(counters: U32, key: tuple[int, int]) -> U32:
    """Philox4x32-10: a block of four random words per counter.

    Shapes:  [N, 4] → [N, 4]
    Source:  Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", §4.3
    """
    c0, c1, c2, c3 = (counters[:, i].astype(np.uint64) for i in range(4))
    key0, key1 = key
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> np.uint64(32)) ^ c1 ^ np.uint64(key0),
            product1 & LOW_32,
            (product0 >> np.uint64(32)) ^ c3 ^ np.uint64(key1),
            product0 & LOW_32,
        )
        key0, key1 = (key0 + WEYL[0]) & 0xFFFFFFFF, (key1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)
