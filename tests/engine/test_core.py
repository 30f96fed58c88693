"""The engine as its clients see it: requests in, events out."""

from __future__ import annotations

import pytest

from paceline.backends.base import PoolShape, StepInput, StepOutput
from paceline.backends.null import NullBackend
from paceline.backends.simulated import HashBackend
from paceline.engine.messages import Event, Finished, Tokens
from paceline.errors import EngineError
from tests.engine.bench_engine import MAX_MODEL_LEN, Sizes, new_engine
from tests.engine.null_engine import request_of


def test_tokens_then_one_finish_come_out() -> None:
    engine = new_engine(NullBackend(50, (3, 4)))
    engine.submit(request_of("a", max_tokens=2))
    assert engine.has_work()
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    assert [event.token_ids for event in events if isinstance(event, Tokens)] == [[4], [3]]
    (end,) = [event for event in events if isinstance(event, Finished)]
    assert events[-1] is end
    assert (end.reason, end.num_prompt_tokens, end.num_tokens) == ("length", 3, 2)
    assert end.timings.arrived <= end.timings.finished


def test_stats_count_steps_and_their_tokens() -> None:
    engine = new_engine(NullBackend(50))
    engine.submit(request_of("a", max_tokens=3))
    while engine.has_work():
        engine.step()
    stats = engine.stats()
    assert (stats.num_steps, stats.step_tokens) == (3, 5)
    assert stats.step_s > 0


def test_an_abort_is_heard_with_the_next_step() -> None:
    engine = new_engine(NullBackend(50))
    engine.submit(request_of("a"))
    engine.step()
    assert engine.stats().num_blocks_used == 1
    engine.abort("a")
    assert engine.stats().num_blocks_used == 0
    assert engine.has_work()
    (end,) = engine.step()
    assert isinstance(end, Finished)
    assert end.reason == "abort"
    assert not engine.has_work()


def test_a_backend_that_fails_ends_the_requests_of_its_step_and_no_other() -> None:
    class Failing(NullBackend):
        """Fails once."""

        has_failed = False

        def forward(self, step: StepInput) -> StepOutput:
            """See `Backend.forward`."""
            if not self.has_failed:
                self.has_failed = True
                raise EngineError("Broken at 0xdeadbeef.")
            return super().forward(step)

    engine = new_engine(Failing(50), Sizes(max_num_seqs=1))
    engine.submit(request_of("a"))
    engine.submit(request_of("b", max_tokens=1))
    (end,) = engine.step()
    assert isinstance(end, Finished)
    assert (end.request_id, end.reason) == ("a", "error")
    assert "0x" not in end.message
    assert [type(event) for event in engine.step()] == [Tokens, Finished]


@pytest.mark.parametrize("salt", ["", "mine"])
def test_a_salt_has_prefixes_of_its_own(salt: str) -> None:
    engine = new_engine(HashBackend(50, PoolShape(128, MAX_MODEL_LEN // 16)))
    cached = []
    for name, own_salt in (("a", salt), ("b", "other"), ("c", salt)):
        engine.submit(request_of(name, [*range(40)], max_tokens=1, cache_salt=own_salt))
        events: list[Event] = []
        while engine.has_work():
            events += engine.step()
        cached += [event.timings.cached_tokens for event in events if isinstance(event, Finished)]
    assert cached == [0, 0, 32]
