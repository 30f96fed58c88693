"""The engine's bookkeeping under random load: every scenario says what each request would say alone."""

from __future__ import annotations

from collections import Counter

from tests.simulation.rehearsal import run_seed

NUM_SEEDS = 1000


def test_a_thousand_random_scenarios_hold_every_invariant() -> None:
    totals: Counter[str] = Counter()
    for seed in range(NUM_SEEDS):
        try:
            outcome = run_seed(seed)
        except Exception as error:
            error.add_note(f"replay with: python -m benchmarks.simulate --seed {seed}")
            raise
        totals.update(outcome.reasons)
        totals["preempted"] += outcome.num_preemptions
        totals["cached"] += outcome.num_cached_tokens
        totals["accepted"] += outcome.num_accepted_drafts
        totals["refused"] += outcome.num_refused
    expected = ("stop", "length", "abort", "deadline", "error", "preempted", "cached", "accepted", "refused")
    assert all(totals[kind] >= 50 for kind in expected), f"a kind of event is too rare to be tested: {totals}"
