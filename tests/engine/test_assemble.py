"""A plan as flat arrays."""

from __future__ import annotations

from paceline.engine.assemble import assemble
from tests.engine.null_engine import Desk, request_of


def test_every_array_says_what_the_plan_says() -> None:
    desk = Desk(budget=24)
    desk.submit(request_of("a", [5, 6, 7], seed=-1, temperature=0.5, top_k=-1, top_p=0.75, min_p=0.25))
    desk.step()
    (seq,) = desk.scheduler.drafting
    seq.propose([8, 9])
    desk.submit(request_of("b", range(100, 140)))
    step = assemble(desk.plan())
    assert step.token_ids.tolist() == [97, 8, 9, *range(100, 121)]
    assert step.positions.tolist() == [3, 4, 5, *range(21)]
    assert step.slice_starts.tolist() == [0, 3, 24]
    assert step.context_lens.tolist() == [6, 21]
    assert step.block_tables.tolist() == [[[1, 0], [2, 3]]]
    assert step.row_indices.tolist() == [0, 1, 2]
    assert step.copies.shape == (0, 2)
    draws = step.draws
    assert draws.positions.tolist() == [4, 5, 6], "a row's draw belongs to the token after it"
    assert draws.seeds.tolist() == [2**64 - 1] * 3
    assert draws.top_k.tolist() == [0] * 3
    assert (draws.temperature.tolist(), draws.top_p.tolist(), draws.min_p.tolist()) == ([0.5] * 3, [0.75] * 3, [0.25] * 3)
    assert not step.needs_logits


def test_a_step_without_rows_is_a_step() -> None:
    desk = Desk(budget=8)
    desk.submit(request_of("a", range(20), logprobs=1))
    step = assemble(desk.plan())
    assert (len(step.token_ids), len(step.row_indices), len(step.draws.seeds)) == (8, 0, 0)
    assert not step.needs_logits, "logits are needed where there are rows"


def test_one_row_that_needs_logits_makes_the_step_give_them() -> None:
    desk = Desk()
    desk.submit(request_of("a"))
    desk.submit(request_of("b", logprobs=0))
    assert assemble(desk.plan()).needs_logits


def test_copies_go_with_the_step() -> None:
    desk = Desk()
    desk.submit(request_of("a"))
    plan = desk.plan()
    plan.copies.append((3, 4))
    assert assemble(plan).copies.tolist() == [[3, 4]]
