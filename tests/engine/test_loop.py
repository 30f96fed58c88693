"""The loop answers every request once, waits only when idle, and ends when told or left."""

from __future__ import annotations

from paceline.engine.loop import run_loop
from paceline.engine.messages import Abort, Command, Finished, Frame, Report, Shutdown, Submit, Tokens
from tests.engine.looped_engine import LoopedEngine, looped_request


class ListedCommands:
    """Gives the batches it was made with, then the end; records how it was asked."""

    def __init__(self, *batches: list[Command]) -> None:
        self._batches = list(batches)
        self.waits: list[bool] = []

    def take(self, *, wait: bool) -> list[Command] | None:
        self.waits.append(wait)
        if self._batches:
            return self._batches.pop(0)
        return None if wait else []


def run(engine: LoopedEngine, commands: ListedCommands) -> list[Frame]:
    reports: list[Report] = []
    run_loop(engine, commands, reports.append)
    return [report for report in reports if isinstance(report, Frame)]


def finishes(frames: list[Frame]) -> list[Finished]:
    return [event for frame in frames for event in frame.events if isinstance(event, Finished)]


def test_a_request_gets_its_tokens_a_step_at_a_time_then_one_finish() -> None:
    frames = run(LoopedEngine(), ListedCommands([Submit(looped_request(max_tokens=3))]))
    assert [[type(event) for event in frame.events] for frame in frames] == [[Tokens], [Tokens], [Tokens, Finished]]


def test_it_waits_only_without_work() -> None:
    commands = ListedCommands([Submit(looped_request(max_tokens=2))])
    run(LoopedEngine(), commands)
    assert commands.waits == [True, False, True]


def test_an_abort_frees_within_a_step() -> None:
    frames = run(LoopedEngine(), ListedCommands([Submit(looped_request(max_tokens=50))], [Abort("a")]))
    assert [finished.reason for finished in finishes(frames)] == ["abort"]
    assert frames[-1].stats.num_blocks_used == 0
    assert len(frames) == 2


def test_a_shutdown_answers_everything_open() -> None:
    commands = ListedCommands([Submit(looped_request("a", max_tokens=50, n=2)), Submit(looped_request("b", max_tokens=50))], [Shutdown()])
    ends = {(finished.request_id, finished.index, finished.reason) for finished in finishes(run(LoopedEngine(), commands))}
    assert ends == {("a", 0, "abort"), ("a", 1, "abort"), ("b", 0, "abort")}


def test_a_refused_request_is_answered_with_an_error_per_sequence() -> None:
    ends = finishes(run(LoopedEngine(refuses=True), ListedCommands([Submit(looped_request(n=2))])))
    assert [(finished.index, finished.reason, finished.message) for finished in ends] == [
        (0, "error", "The queue is full."),
        (1, "error", "The queue is full."),
    ]
