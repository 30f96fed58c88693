"""How fast the machine's memory is right now: measured around each pair, because on a virtual machine it changes within minutes.

The one idea: two figures may be compared only when the machine was the same for both. A pair whose probes before and after differ by
more than `MAX_CHANGE` is set aside and measured anew.

The probe is a plain read of more memory than any cache holds, on all threads; it says how fast now is compared with before, not what the
memory could do at best (`paceline inspect --machine` does).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

PROBE_BYTES = 1 << 28
PROBE_REPEATS = 8
MAX_CHANGE = 1.25
"""The two regimes seen on a virtual machine lie a factor of 1.6 to 1.9 apart; within one, probes differ by a few percent."""


MAX_BARRIER_CHANGE = 2.0
"""The same regimes differ by a factor of 5 in how long two threads take to meet."""


class Regime(msgspec.Struct, frozen=True):
    """What a probe saw. Units: 1e9 bytes per second · nanoseconds for all threads to meet, None when not measured."""

    read_gb_per_s: float
    barrier_ns: float | None = None


class ReadProbe:
    """Measures the regime by reading `num_bytes` with `threads` threads."""

    def __init__(self, threads: int, num_bytes: int = PROBE_BYTES) -> None:
        self._parts = np.array_split(np.ones(num_bytes // 8, np.int64), threads)
        self._pool = ThreadPoolExecutor(threads)

    def measure(self) -> Regime:
        """The best of a few reads."""
        seconds = min(self._read() for _ in range(PROBE_REPEATS))
        return Regime(sum(part.nbytes for part in self._parts) / seconds / 1e9)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _read(self) -> float:
        started = time.perf_counter()
        list(self._pool.map(np.bitwise_or.reduce, self._parts))
        return time.perf_counter() - started


def is_steady(before: Regime, after: Regime) -> bool:
    """Whether both probes saw the same machine."""
    if before.barrier_ns and after.barrier_ns and _change(before.barrier_ns, after.barrier_ns) > MAX_BARRIER_CHANGE:
        return False
    return _change(before.read_gb_per_s, after.read_gb_per_s) <= MAX_CHANGE


def _change(before: float, after: float) -> float:
    return max(before, after) / min(before, after)
