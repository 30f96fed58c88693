"""The simulation is worth something: it notices every planted bug."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.rehearsal import run_seed

MAX_SEEDS = 300


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_failure() is not None, f"{MAX_SEEDS} scenarios ran as if nothing were wrong"


def first_failure() -> int | None:
    """The first seed whose scenario fails."""
    for seed in range(MAX_SEEDS):
        try:
            run_seed(seed)
        except Exception:
            return seed
    return None
