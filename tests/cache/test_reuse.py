"""Chances of reuse by age: what is counted is what is found, and the value prefers the age before the peak."""

from __future__ import annotations

import math
from random import Random

import pytest

from paceline.cache.reuse import EDGES, LAST_WIDTH, NUM_AGES, WIDTHS, ReuseTable, age_of, prior_chances, values


def test_ages_tile_the_time() -> None:
    assert [age_of(edge) for edge in EDGES] == list(range(NUM_AGES))
    assert age_of(4.999) == 0
    assert age_of(-1.0) == 0
    assert age_of(1e12) == NUM_AGES - 1
    assert sum(WIDTHS) == EDGES[-1] + LAST_WIDTH


def test_a_wait_is_counted_in_every_age_it_passed() -> None:
    table = ReuseTable()
    table.add(12.0, is_used=True)
    table.add(7.0, is_used=False)
    assert table.waited[:3] == [10.0, 5.0 + 2.0, 2.0]
    assert sum(table.uses) == table.uses[2] == 1.0


def test_chances_of_a_steady_process_are_found() -> None:
    rng, table = Random(1), ReuseTable()
    for _ in range(20_000):
        table.add(rng.expovariate(1 / 60), is_used=True)
    chances = table.chances(prior_chances())
    for age in range(age_of(150.0)):  # 20,000 waits leave at least 260 uses in each of these ages: 4 standard errors < 25 %
        assert chances[age] == pytest.approx(1 / 60, rel=0.25)


def test_little_evidence_stays_near_what_all_classes_have_in_common() -> None:
    common = [0.01] * NUM_AGES
    assert ReuseTable().chances(common) == pytest.approx(common)


def test_what_nears_its_peak_is_worth_more_than_what_just_came() -> None:
    peak = [0.02 if 60 <= edge < 100 else 1e-4 for edge in EDGES]
    worth = values(peak)
    assert worth[0] < worth[age_of(30.0)] < worth[age_of(50.0)] < worth[age_of(60.0)]
    assert worth[age_of(100.0)] < worth[0]


def test_value_of_a_constant_chance_is_that_chance() -> None:
    assert values([0.005] * NUM_AGES) == pytest.approx([0.005] * NUM_AGES)


def test_value_is_no_less_than_giving_up_after_one_age() -> None:
    rng = Random(2)
    chances = [10 ** rng.uniform(-5, -1) for _ in range(NUM_AGES)]
    for value, chance in zip(values(chances), chances, strict=True):
        assert value >= chance * (1 - 1e-12)


def test_fading_keeps_the_chances() -> None:
    table = ReuseTable()
    for _ in range(100_000):
        table.add(35.0, is_used=True)
    before = table.chances([0.01] * NUM_AGES)[age_of(30.0)]
    table.fade(0.5)
    assert math.isclose(table.chances([0.01] * NUM_AGES)[age_of(30.0)], before, rel_tol=1e-3)


def test_many_waits_count_as_one_by_one() -> None:
    rng = Random(3)
    waits = [0.0, 5.0, 9000.0, *(rng.uniform(0.0, 4000.0) for _ in range(200))]
    table = ReuseTable()
    for wait in waits:
        table.add(wait, is_used=False)
    assert ReuseTable.of_waits(sorted(waits)).waited == pytest.approx(table.waited)
