"""The time model finds the costs of a made-up machine, forgets an old one, and keeps its head when a step is interrupted."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planner.time_model import (
    KNEES,
    NUM_RATIOS,
    OUTLIER,
    Prior,
    TimeModel,
    Work,
    non_negative_least_squares,
    work_of,
)
from paceline.planner.time_store import MOST_KEPT, load_time_model, save_time_model, time_model_path


def random_work(rng: Random) -> Work:
    """A step of up to 32 decodes and up to two slices of a prompt."""
    decodes = [(rng.randrange(1, 4000), 1, 1) for _ in range(rng.choice((0, 1, 1, 2, 4, 8, 16, 32)))]
    prefills = [(rng.randrange(0, 4000), rng.randrange(2, 256), rng.randrange(2)) for _ in range(rng.choice((0, 0, 1, 2)))]
    return work_of(decodes + prefills or [(100, 1, 1)])


def seconds_of(work: Work, *, knee: int = 8, slow: float = 1.0) -> float:
    """A made-up machine: 3 ms to read the weights, 0.3 ms a token beyond the knee, attention by what it reads."""
    arithmetic = 3e-4 * max(0, work.num_tokens - knee)
    return slow * (3e-3 + 2e-5 * work.num_tokens + arithmetic + 1.5e-8 * work.prefill + 4e-8 * work.decode_context + 5e-5 * work.num_rows)


def taught(num_steps: int, *, noise: float = 0.05, seed: int = 1, **machine: Any) -> TimeModel:
    rng, model = Random(seed), TimeModel()
    for _ in range(num_steps):
        work = random_work(rng)
        model.observe(work, seconds_of(work, **machine) * rng.uniform(1 - noise, 1 + noise))
    return model


def errors(model: TimeModel, *, seed: int = 9, **machine: Any) -> list[float]:
    rng = Random(seed)
    works = [random_work(rng) for _ in range(500)]
    return sorted(abs(model.predict(work) / seconds_of(work, **machine) - 1) for work in works)


def test_work_adds_up_over_slices() -> None:
    assert work_of([(100, 1, 1), (0, 10, 1), (50, 4, 2)]) == Work(15, 10 * 0 + 55 + 4 * 50 + 10, 101, 3, 4)


def test_costs_of_a_machine_are_found_on_steps_it_was_not_fitted_to() -> None:
    found = errors(taught(2000))
    assert found[250] < 0.02
    assert found[495] < 0.10


@pytest.mark.parametrize("knee", [4, 16])
def test_the_knee_is_found(knee: int) -> None:
    assert taught(2000, noise=0.02, knee=knee).knee == knee


def test_it_forgets_a_machine_that_changed() -> None:
    rng, model = Random(3), taught(2000)
    for _ in range(5000):  # the old machine weighs 0.7 % then
        work = random_work(rng)
        model.observe(work, seconds_of(work, slow=2.0))
    assert errors(model, slow=2.0)[250] < 0.05


def test_interrupted_steps_hardly_move_it() -> None:
    rng, model = Random(4), taught(1000)
    for count in range(1000):
        work = random_work(rng)
        model.observe(work, seconds_of(work) * (200.0 if count % 50 == 0 else 1.0))
    assert errors(model)[250] < (OUTLIER - 1) / 50 * 2


def test_a_quantile_is_what_so_many_steps_stayed_within() -> None:
    model = taught(3000, noise=0.2)
    assert 0.97 < model.quantile(0.5) < 1.03
    assert 1.15 < model.quantile(0.99) < 1.25
    assert model.quantile(0.1) < model.quantile(0.5) < model.quantile(0.9)
    assert TimeModel().quantile(0.99) == 1.0
    assert len(model._ratios) == len(model._sorted_ratios) == NUM_RATIOS


def test_it_answers_before_the_first_step_and_learns_from_the_first() -> None:
    model = TimeModel(Prior(constant=0.01, token=1e-3))
    work = Work(1, 0, 100, 1, 1)
    assert model.predict(work) == pytest.approx(0.01, rel=0.1)
    for _ in range(32):
        model.observe(work, 0.002)
    assert model.predict(work) == pytest.approx(0.002, rel=0.1)


def test_more_work_never_costs_less() -> None:
    model = taught(500, noise=0.5)
    base = Work(20, 1000, 500, 4, 4)
    grown = [
        Work(21, 1000, 500, 4, 4),
        Work(21, 2000, 500, 4, 4),
        Work(21, 2000, 900, 4, 4),
        Work(21, 2000, 900, 5, 4),
        Work(21, 2000, 900, 5, 9),
    ]
    times = [model.predict(work) for work in (base, *grown)]
    assert all(before <= after for before, after in pairwise(times))
    assert min(model.weights) >= 0.0


@given(st.integers(0, 10_000))
def test_non_negative_least_squares_meets_its_optimality_conditions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, wanted = rng.normal(size=(20, 5)), rng.normal(size=20)
    products, targets = rows.T @ rows, rows.T @ wanted
    w = non_negative_least_squares(products, targets)
    slope = products @ w - targets
    assert (w >= 0).all()
    assert (slope >= -1e-8).all()  # no weight wants to grow
    assert np.abs(slope[w > 0]).max(initial=0.0) < 1e-8  # none of the free ones wants to move


def test_what_was_learned_is_kept(tmp_path: Path) -> None:
    model, path = taught(500), tmp_path / "deep" / "model.json"
    save_time_model(path, model)
    again = load_time_model(path)
    work = Work(33, 5000, 7000, 20, 20)
    assert again.predict(work) == pytest.approx(model.predict(work), rel=0.02)
    assert (again.num_steps, again.knee, again.quantile(0.9)) == (500, model.knee, model.quantile(0.9))
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "state": {"products": 1}}', '{"version": 99}'])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    assert load_time_model(path).num_steps == 0


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    state = taught(10).state()
    for broken in ({**state, "knee": len(KNEES)}, {**state, "ratios": [float("nan")]}, {**state, "targets": [[1.0]]}):
        path = tmp_path / "model.json"
        path.write_text(json.dumps({"version": 1, "state": broken}))
        assert load_time_model(path).num_steps == 0


def test_a_disk_that_refuses_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    save_time_model(tmp_path / "file" / "model.json", TimeModel())


def test_only_so_many_are_kept_and_the_newest_is_one(tmp_path: Path) -> None:
    for count in range(MOST_KEPT + 3):
        (tmp_path / f"{count}.json").write_text("{}")
        os.utime(tmp_path / f"{count}.json", (count, count))
    save_time_model(tmp_path / "new.json", taught(3))
    kept = {path.name for path in tmp_path.iterdir()}
    assert len(kept) == MOST_KEPT
    assert "new.json" in kept
    assert "0.json" not in kept


def test_every_combination_has_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    base = ("digest", "native", 2, "cpu")
    paths = {time_model_path(*base), time_model_path("other", *base[1:]), time_model_path("digest", "native", 3, "cpu")}
    assert len(paths) == 3
