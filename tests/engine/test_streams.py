"""A stream gives everything once, is bounded, and always ends."""

from __future__ import annotations

import asyncio

from paceline.engine.messages import EngineStats, Event, Finished, Frame, Tokens
from paceline.engine.streams import MAX_UNREAD_TOKENS, EventRouter, EventStream
from tests.engine.looped_engine import LoopedEngine, looped_request


def frames_of(engine: LoopedEngine) -> list[Frame]:
    frames = []
    while engine.has_work():
        frames.append(Frame(engine.step(), engine.stats()))
    return frames


def routed(max_tokens: int, *, n: int = 1) -> tuple[EventRouter, EventStream, LoopedEngine, list[EventStream]]:
    engine, router, aborted = LoopedEngine(), EventRouter(), list[EventStream]()
    request = looped_request(max_tokens=max_tokens, n=n)
    stream = EventStream([request], aborted.append)
    router.add(stream)
    engine.submit(request)
    return router, stream, engine, aborted


def test_a_reader_that_comes_late_gets_all_steps_at_once() -> None:
    router, stream, engine, _ = routed(3, n=2)
    for frame in frames_of(engine):
        router.route(frame)
    events = asyncio.run(stream.take())
    assert [event.token_ids for event in events if isinstance(event, Tokens) and event.index == 1] == [[65], [66], [67]]
    assert stream.is_finished
    assert asyncio.run(stream.take()) == []
    assert router.num_open == 0


def test_a_waiting_reader_is_woken_by_each_step() -> None:
    async def read() -> list[int]:
        router, stream, engine, _ = routed(3)
        sizes = []
        for frame in frames_of(engine):
            waiting = asyncio.create_task(stream.take())
            await asyncio.sleep(0)
            assert not waiting.done()
            router.route(frame)
            sizes.append(len(await waiting))
        return sizes

    assert asyncio.run(read()) == [1, 1, 2]


def test_a_poke_wakes_with_nothing() -> None:
    async def read() -> list[Event]:
        _, stream, _, _ = routed(3)
        waiting = asyncio.create_task(stream.take())
        await asyncio.sleep(0)
        stream.poke()
        return await waiting

    assert asyncio.run(read()) == []


def test_a_reader_that_takes_nothing_is_cut_off_at_the_bound() -> None:
    router, stream, engine, aborted = routed(10**6)
    for _ in range(MAX_UNREAD_TOKENS + 100):
        router.route(Frame(engine.step(), engine.stats()))
    events = asyncio.run(stream.take())
    last = events[-1]
    assert len(events) == MAX_UNREAD_TOKENS + 2
    assert isinstance(last, Finished)
    assert (last.reason, last.message) == ("abort", f"The reader fell {MAX_UNREAD_TOKENS + 1} tokens behind.")
    assert aborted == [stream]


def test_the_engines_death_ends_every_open_sequence_once() -> None:
    router, stream, engine, _ = routed(2, n=2)
    router.route(Frame(engine.step(), engine.stats()))
    router.end_all("gone")
    router.route(Frame(engine.step(), EngineStats()))
    ends = [event for event in asyncio.run(stream.take()) if isinstance(event, Finished)]
    assert [(end.index, end.reason, end.message) for end in ends] == [(0, "error", "gone"), (1, "error", "gone")]


def test_a_stream_that_is_cut_off_counts_until_the_engine_has_ended_all_of_it() -> None:
    router, stream, engine, aborted = routed(MAX_UNREAD_TOKENS, n=2)
    while not aborted:
        router.route(Frame(engine.step(), engine.stats()))
    assert stream.is_finished
    engine.abort("a")
    first, *rest = [event for event in engine.step() if isinstance(event, Finished)]
    router.route(Frame([first], EngineStats()))
    assert router.num_open == 1
    router.route(Frame(list(rest), EngineStats()))
    assert router.num_open == 0
