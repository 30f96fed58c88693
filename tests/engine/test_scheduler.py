"""One rule for all work: who catches up how far, who waits, who is preempted, how it ends."""

from __future__ import annotations

import pytest

from paceline.engine.messages import Finished, Tokens
from paceline.engine.plan import Verdict
from paceline.engine.policy import ArrivalOrder
from paceline.engine.sequence import State
from paceline.errors import CapacityError, ContextLengthError, RequestError
from tests.engine.null_engine import Desk, request_of, shares


def test_a_long_prompt_is_computed_in_slices_of_the_budget() -> None:
    desk = Desk(budget=16)
    desk.submit(request_of("a", range(40)))
    steps = [desk.step() for _ in range(3)]
    assert [shares(plan) for plan, _ in steps] == [{"a": 16}, {"a": 16}, {"a": 8}]
    assert [plan.slices[0].num_rows for plan, _ in steps] == [0, 0, 1]
    assert [len(events) for _, events in steps] == [0, 0, 1]


def test_decodes_come_before_prompts_and_share_their_step() -> None:
    desk = Desk(budget=16)
    desk.submit(request_of("a"))
    desk.step()
    desk.submit(request_of("b", range(40), priority=-5))
    plan, _ = desk.step()
    assert [piece.sequence.request.id for piece in plan.slices] == ["a", "b"]
    assert shares(plan) == {"a": 1, "b": 15}


def test_a_better_waiting_request_overtakes_a_running_prompt() -> None:
    desk = Desk(budget=16)
    desk.submit(request_of("slow", range(100, 160)))
    desk.step()
    desk.submit(request_of("urgent", range(20), priority=-1))
    assert shares(desk.step()[0]) == {"urgent": 16}
    assert shares(desk.step()[0]) == {"urgent": 4, "slow": 12}


def test_equal_priorities_run_in_the_order_of_arrival() -> None:
    desk = Desk(max_num_seqs=1)
    for name in ("a", "b", "c"):
        desk.submit(request_of(name, max_tokens=2))
    assert [end.request_id for end in desk.finish_all()] == ["a", "b", "c"]


def test_one_place_goes_to_the_better_priority_even_when_it_is_taken() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit(request_of("low", priority=1))
    desk.step()
    desk.submit(request_of("high", priority=0))
    plan, _ = desk.step()
    assert [seq.request.id for seq in plan.preempted] == ["low"]
    assert [end.request_id for end in desk.finish_all()] == ["high", "low"]


def test_batch_requests_give_way_to_interactive_ones() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit(request_of("batch", request_class="batch", priority=-9))
    desk.step()
    desk.submit(request_of("chat"))
    assert [end.request_id for end in desk.finish_all()] == ["chat", "batch"]


def test_arrival_order_ignores_priorities() -> None:
    desk = Desk(max_num_seqs=1, policy=ArrivalOrder())
    desk.submit(request_of("low", priority=1))
    desk.step()
    desk.submit(request_of("high", priority=0))
    assert [end.request_id for end in desk.finish_all()] == ["low", "high"]


def test_admission_waits_for_blocks_and_nobody_overtakes() -> None:
    desk = Desk(num_blocks=5)
    desk.submit(request_of("a", range(40)))
    desk.submit(request_of("b", range(100, 140)))
    desk.submit(request_of("c", range(200, 203)))
    assert shares(desk.step()[0]) == {"a": 40}
    assert [seq.request.id for seq in desk.scheduler.waiting] == ["b", "c"]


def test_a_preempted_sequence_keeps_its_tokens_and_resumes_on_a_hit() -> None:
    desk = Desk(num_blocks=5)
    for name, first in (("a", 0), ("b", 100)):
        desk.submit(request_of(name, range(first, first + 30), max_tokens=10))
    for _ in range(3):
        desk.step()
    plan, _ = desk.step()
    (victim,) = plan.preempted
    assert victim.request.id == "b"
    assert len(victim.token_ids) == 33
    assert victim.state is State.WAITING
    ends = desk.finish_all()
    assert [(end.request_id, end.num_tokens) for end in ends] == [("a", 10), ("b", 10)]
    timings = ends[1].timings
    assert timings.preemptions == 1
    assert timings.preempted_s == 7.0, "until `a` had its last token"
    assert timings.recomputed_tokens == 16, "one of its two full blocks was taken"
    assert timings.cached_tokens == 0


def test_the_stats_count_what_happens() -> None:
    desk = Desk()
    desk.submit(request_of("a", range(40)))
    desk.submit(request_of("b", range(40)))
    assert desk.scheduler.stats().num_waiting == 2
    desk.step()
    stats = desk.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_used) == (2, 0, 4), "two full blocks are shared"
    desk.finish_all()
    desk.submit(request_of("c", range(40)))
    desk.finish_all()
    stats = desk.scheduler.stats()
    assert (stats.prefix_queries, stats.prefix_hits, stats.num_blocks_used) == (120, 32, 0)


def test_sequences_of_a_request_wait_for_its_first_and_share_the_prompt() -> None:
    desk = Desk(budget=20)
    desk.submit(request_of("a", range(33), n=3))
    assert [piece.sequence.index for piece in desk.step()[0].slices] == [0]
    assert desk.scheduler.stats().num_waiting == 2
    assert [piece.sequence.index for piece in desk.step()[0].slices] == [0]
    plan, _ = desk.step()
    assert [(piece.sequence.index, piece.start, piece.num_new) for piece in plan.slices] == [(0, 33, 1), (1, 32, 1), (2, 32, 1)]
    ends = desk.finish_all()
    assert sorted(end.index for end in ends) == [0, 1, 2]
    assert [end.timings.cached_tokens for end in sorted(ends, key=lambda end: end.index)] == [0, 32, 32]


@pytest.mark.parametrize("state", ["waiting", "running", "held", "preempted"])
def test_an_abort_ends_every_sequence_and_frees_its_blocks(state: str) -> None:
    desk = Desk(max_num_seqs=1)
    if state == "waiting":
        desk.submit(request_of("other"))
        desk.step()
    desk.submit(request_of("a", range(40), n=2 if state == "held" else 1))
    if state != "waiting":
        desk.step()
    if state == "preempted":
        desk.submit(request_of("other", priority=-1))
        desk.step()
    desk.scheduler.abort("a", desk.now)
    ends = [event for event in desk.step()[1] if isinstance(event, Finished)]
    assert {(end.request_id, end.reason) for end in ends} == {("a", "abort")}
    assert len(ends) == (2 if state == "held" else 1)
    desk.finish_all()
    assert desk.pool.num_used == 0


def test_an_unknown_abort_is_ignored() -> None:
    desk = Desk()
    desk.scheduler.abort("nobody", 0.0)
    assert not desk.scheduler.has_work


def test_a_deadline_ends_a_request_wherever_it_is() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit(request_of("running", deadline_s=3.5, max_tokens=100))
    desk.submit(request_of("waiting", deadline_s=2.5))
    ends = desk.finish_all()
    assert [(end.request_id, end.reason, end.num_tokens, end.timings.finished) for end in ends] == [
        ("waiting", "deadline", 0, 3.0),
        ("running", "deadline", 3, 4.0),
    ]


def test_an_id_is_free_again_with_its_request_and_its_deadline_gone() -> None:
    desk = Desk()
    desk.submit(request_of("a", max_tokens=1, deadline_s=3.0))
    desk.finish_all()
    desk.submit(request_of("a", max_tokens=9))
    (end,) = desk.finish_all()
    assert (end.reason, end.num_tokens) == ("length", 9)


def test_a_full_queue_refuses_and_an_empty_one_takes_any_n() -> None:
    desk = Desk(max_num_seqs=1, max_waiting=2)
    desk.submit(request_of("a", n=3))
    with pytest.raises(CapacityError, match="3 of 2"):
        desk.submit(request_of("b"))
    desk.finish_all()
    desk.submit(request_of("b"))


def test_an_id_in_use_is_refused() -> None:
    desk = Desk()
    desk.submit(request_of("a"))
    with pytest.raises(RequestError, match="`a` is already running"):
        desk.submit(request_of("a"))


def test_what_can_never_fit_is_refused_and_what_just_fits_runs() -> None:
    desk = Desk(num_blocks=4)
    desk.submit(request_of("fits", range(40), max_tokens=9))
    with pytest.raises(ContextLengthError) as caught:
        desk.submit(request_of("never", range(40), max_tokens=10))
    assert (caught.value.num_tokens, caught.value.max_model_len) == (40, 48)
    assert [(end.reason, end.num_tokens) for end in desk.finish_all()] == [("length", 9)]


def test_a_failed_step_ends_its_requests_alone() -> None:
    desk = Desk(max_num_seqs=1)
    desk.submit(request_of("a", n=2))
    desk.submit(request_of("b"))
    events = desk.scheduler.fail(desk.plan(), "It broke.", desk.now)
    assert [(end.request_id, end.reason, end.message) for end in events if isinstance(end, Finished)] == [("a", "error", "It broke.")] * 2
    assert [(end.request_id, end.reason) for end in desk.finish_all()] == [("b", "length")]


def test_drafts_are_more_tokens_to_catch_up_on() -> None:
    desk = Desk(budget=5)
    desk.submit(request_of("a", max_tokens=5))
    desk.step()
    (seq,) = desk.scheduler.drafting
    seq.propose([97, 97, 97, 97, 97, 97])
    assert seq.draft == [97, 97, 97], "the fifth token is picked, never drafted"
    plan = desk.plan()
    assert (plan.slices[0].num_new, plan.slices[0].num_rows) == (4, 4)


def test_an_end_inside_accepted_drafts_cuts_them() -> None:
    desk = Desk()
    desk.submit(request_of("a", stop=("bc",), logprobs=None))
    desk.step()
    (seq,) = desk.scheduler.drafting
    seq.propose([98, 99, 100])
    plan = desk.plan()
    events = desk.scheduler.commit(plan, [Verdict(seq, [98, 99, 100, 101], 3)], desk.now)
    tokens, end = events
    assert isinstance(tokens, Tokens)
    assert isinstance(end, Finished)
    assert tokens.token_ids == [98, 99]
    assert (end.reason, end.stop_reason, end.num_tokens) == ("stop", "bc", 3)
    assert desk.pool.num_used == 0
