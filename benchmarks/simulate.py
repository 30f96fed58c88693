"""Run many random scenarios of the engine over the hash backend, on every core: `python -m benchmarks.simulate --seeds 10000`.

Prints a JSON summary; a failing seed is named and replays with `--seed N`. It measures nothing but itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import reduce

from tests.simulation.rehearsal import run_seed

CHUNK_SEEDS = 100
MAX_FAILURES_SHOWN = 20


@dataclass
class Summary:
    """What a range of seeds brought."""

    num_seeds: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def merged(self, other: Summary) -> Summary:
        """Both ranges together."""
        return Summary(self.num_seeds + other.num_seeds, self.totals + other.totals, self.failures | other.failures)


def run_range(seeds: range) -> Summary:
    """Play the scenarios of some seeds."""
    summary = Summary()
    for seed in seeds:
        summary.num_seeds += 1
        try:
            outcome = run_seed(seed)
        except Exception as error:  # whatever it is, it belongs to the report
            summary.failures[seed] = f"{type(error).__name__}: {error}"
            continue
        summary.totals.update({f"finished_{reason}": count for reason, count in outcome.reasons.items()})
        summary.totals.update(
            steps=outcome.num_steps,
            requests=outcome.num_requests,
            refused=outcome.num_refused,
            preemptions=outcome.num_preemptions,
            cached_tokens=outcome.num_cached_tokens,
            accepted_drafts=outcome.num_accepted_drafts,
        )
    return summary


def main() -> int:
    """Run the command line; give the exit code: 1 when a seed failed or the time was over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds, from --first")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--max-seconds", type=float, help="fail when the run takes longer")
    parser.add_argument("--seed", type=int, help="replay this seed alone, with its traceback")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        print(run_seed(arguments.seed))
        return 0
    started = time.monotonic()
    last = arguments.first + arguments.seeds
    chunks = [range(first, min(first + CHUNK_SEEDS, last)) for first in range(arguments.first, last, CHUNK_SEEDS)]
    with ProcessPoolExecutor(arguments.workers) as executor:
        summary = reduce(Summary.merged, executor.map(run_range, chunks), Summary())
    seconds = round(time.monotonic() - started, 1)
    is_late = arguments.max_seconds is not None and seconds > arguments.max_seconds
    report = {
        "seeds": summary.num_seeds,
        "failures": dict(sorted(summary.failures.items())[:MAX_FAILURES_SHOWN]),
        "num_failures": len(summary.failures),
        "seconds": seconds,
        "max_seconds": arguments.max_seconds,
        "workers": arguments.workers,
        **summary.totals,
    }
    print(json.dumps(report, indent=2))
    return 1 if summary.failures or is_late else 0


if __name__ == "__main__":
    sys.exit(main())
