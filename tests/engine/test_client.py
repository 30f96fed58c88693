"""Both clients say the same of the same engine: ready, refusals, streams, aborts, death, close."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from paceline.config import EngineConfig
from paceline.engine.client import ChildClient, InProcessClient
from paceline.engine.frames import encode_frame
from paceline.engine.launch import launch_engine
from paceline.engine.messages import PROTOCOL_VERSION, Event, Finished, Ready, Tokens
from paceline.engine.request import Request
from paceline.engine.streams import EventStream
from paceline.errors import CapacityError, EngineError, ModelError, RequestError
from paceline.sampling.params import SamplingParams
from tests.engine.looped_engine import INFO, LoopedEngine
from tests.generators.tiny_models import tiny_gguf

Client = ChildClient | InProcessClient
MakeClient = Callable[[], Client]
CONFIG = EngineConfig(backend="hash", num_blocks=64)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "llama")


@pytest.fixture(autouse=True)
def _from_the_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


@pytest.fixture(params=["child", "in process"])
def make_client(request: pytest.FixtureRequest, tiny: Path) -> MakeClient:
    if request.param == "child":
        return lambda: ChildClient(launch_engine(CONFIG, tiny), max_open=4)
    return lambda: InProcessClient(LoopedEngine(max_model_len=2048), max_open=4)


def run(make_client: MakeClient, work: Callable[[Client], Coroutine[object, object, None]]) -> None:
    async def whole() -> None:
        client = make_client()
        try:
            await client.start()
            await work(client)
        finally:
            await client.close()
            await client.close()

    asyncio.run(whole())


def request(request_id: str, *, max_tokens: int = 3, n: int = 1) -> Request:
    params = SamplingParams(max_tokens=max_tokens, n=n, seed=1, temperature=0.0)
    return Request(id=request_id, prompt_ids=[1, 2, 3], params=params, arrived=time.monotonic())


def endless(client: Client) -> int:
    """More tokens than come before a test goes on: the looped engine is fast and has no bound, the hash backend's pool holds 1,008."""
    return 900 if isinstance(client, ChildClient) else 10**6


async def events_of(stream: EventStream) -> list[Event]:
    events: list[Event] = []
    while not stream.is_finished:
        events += await stream.take()
    return events + await stream.take()


def test_a_request_gives_its_tokens_and_one_finish_per_sequence(make_client: MakeClient) -> None:
    async def work(client: Client) -> None:
        assert client.state == "ready"
        assert client.info.block_size == 16
        events = await events_of(client.submit(request("a", n=2), request("b")))
        ends = [(event.request_id, event.index, event.reason) for event in events if isinstance(event, Finished)]
        assert sorted(ends) == [("a", 0, "length"), ("a", 1, "length"), ("b", 0, "length")]
        assert sum(len(event.token_ids) for event in events if isinstance(event, Tokens)) == 9

    run(make_client, work)


def test_an_abort_ends_the_stream_and_frees_the_blocks(make_client: MakeClient) -> None:
    async def work(client: Client) -> None:
        stream = client.submit(request("a", max_tokens=endless(client)))
        await stream.take()
        stream.abort()
        stream.abort()
        assert (await events_of(stream))[-1].reason == "abort"  # type: ignore[union-attr]  # the last is a finish
        await events_of(client.submit(request("b", max_tokens=1)))
        assert client.stats.num_blocks_used == 0

    run(make_client, work)


def test_requests_over_the_limit_are_refused_and_later_ones_taken(make_client: MakeClient) -> None:
    async def work(client: Client) -> None:
        open_streams = [client.submit(request(str(number), max_tokens=500)) for number in range(4)]
        with pytest.raises(CapacityError, match="the limit is 4"):
            client.submit(request("late"))
        for stream in open_streams:
            stream.abort()
            await events_of(stream)
        assert len(await events_of(client.submit(request("late")))) == 4

    run(make_client, work)


def test_the_limit_counts_sequences_not_requests(make_client: MakeClient) -> None:
    async def work(client: Client) -> None:
        stream = client.submit(request("a", max_tokens=endless(client), n=3))
        with pytest.raises(CapacityError, match="3 sequences are open; the limit is 4"):
            client.submit(request("b", n=2))
        with pytest.raises(RequestError, match="at most 4"):
            client.submit(request("c", n=5))
        stream.abort()
        await events_of(stream)
        assert len(await events_of(client.submit(request("b", n=4, max_tokens=1)))) == 8

    run(make_client, work)


def test_closing_answers_what_is_open_and_is_no_failure(make_client: MakeClient, capfd: pytest.CaptureFixture[str]) -> None:
    async def work(client: Client) -> None:
        stream = client.submit(request("a", max_tokens=endless(client)))
        await client.close()
        last = (await events_of(stream))[-1]
        assert isinstance(last, Finished)
        assert last.reason in ("abort", "error")
        with pytest.raises(EngineError):
            client.submit(request("b"))

    run(make_client, work)
    assert "engine.died" not in capfd.readouterr().err


def test_nothing_is_taken_before_the_engine_is_ready(tiny: Path) -> None:
    async def work() -> None:
        client = ChildClient(launch_engine(CONFIG, tiny), max_open=4)
        assert client.state == "loading"
        with pytest.raises(CapacityError, match="loading"):
            client.submit(request("a"))
        with pytest.raises(CapacityError, match="loading"):
            _ = client.info
        await client.close()

    asyncio.run(work())


def test_a_model_that_does_not_load_raises_the_childs_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))

    async def work() -> None:
        client = ChildClient(launch_engine(CONFIG, broken), max_open=4)
        try:
            with pytest.raises(ModelError, match=r"broken\.gguf"):
                await client.start()
            assert client.state == "dead"
        finally:
            await client.close()

    asyncio.run(work())


def test_an_engine_of_another_protocol_is_refused(tiny: Path) -> None:
    async def work() -> None:
        client = ChildClient(launch_engine(CONFIG, tiny), max_open=4)
        client.data_received(encode_frame(Ready(PROTOCOL_VERSION + 1, INFO)))
        try:
            with pytest.raises(EngineError, match=f"expected {PROTOCOL_VERSION}"):
                await client.start()
        finally:
            await client.close()

    asyncio.run(work())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_child_ends_its_streams_with_an_error_and_is_logged(tiny: Path, number: int, capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        child = launch_engine(dataclasses.replace(CONFIG, max_num_seqs=1), tiny)
        client = ChildClient(child, max_open=4)
        try:
            await client.start()
            streams = [client.submit(request(name, max_tokens=900)) for name in "ab"]
            await streams[0].take()
            os.kill(child.process.pid, number)
            for stream in streams:
                last = (await events_of(stream))[-1]
                assert isinstance(last, Finished)
                assert (last.reason, "ended unexpectedly" in last.message) == ("error", True)
            assert client.state == "dead"
            with pytest.raises(EngineError, match="ended unexpectedly"):
                client.submit(request("c"))
        finally:
            await client.close()

    asyncio.run(work())
    assert "engine.died" in capfd.readouterr().err


def test_an_interrupt_is_the_parents_to_handle(tiny: Path) -> None:
    async def work() -> None:
        child = launch_engine(CONFIG, tiny)
        client = ChildClient(child, max_open=4)
        try:
            await client.start()
            os.kill(child.process.pid, signal.SIGINT)
            assert len(await events_of(client.submit(request("a")))) == 4
        finally:
            await client.close()
        assert child.process.returncode == 0

    asyncio.run(work())


def test_an_engine_that_raises_in_a_thread_ends_its_streams(capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        client = InProcessClient(LoopedEngine(fails_at_step=2), max_open=4)
        await client.start()
        last = (await events_of(client.submit(request("a", max_tokens=50))))[-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.message) == ("error", "The engine stopped on an unexpected ZeroDivisionError.")
        assert client.state == "dead"
        await client.close()

    asyncio.run(work())
    assert "planted" in capfd.readouterr().err
