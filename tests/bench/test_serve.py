"""The server benchmark measures streamed answers of any OpenAI server, and counts the failed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from paceline.bench.http_stream import Endpoint
from paceline.bench.serve import Load, LoadRow, run_load, served_model
from paceline.errors import EngineError, RequestError
from tests.e2e.rehearsal import Answer, Rehearsal, rehearsal


@pytest.fixture
def server() -> Iterator[Rehearsal]:
    with rehearsal() as stage:
        yield stage


def measure(server: Rehearsal, answers: list[Answer], levels: list[int], requests: int) -> list[LoadRow]:
    warm_up = [Answer(["a"], prompt_tokens=20), Answer(["a"], prompt_tokens=52)]
    server.answers += [*warm_up, *answers]
    load = Load(Endpoint.parse(server.url), "m", prompt_tokens=24, gen_tokens=3)
    return asyncio.run(run_load(load, levels, lambda level: requests))


def test_row_counts_tokens_requests_and_latencies(server: Rehearsal) -> None:
    rows = measure(server, [Answer(["a", "b", "c"]) for _ in range(12)], levels=[1, 3], requests=6)
    assert [(row.concurrency, row.requests, row.errors, row.output_tokens) for row in rows] == [(1, 6, 0, 18), (3, 6, 0, 18)]
    for row in rows:
        assert row.output_tokens_per_s == pytest.approx(18 / row.seconds)
        assert row.requests_per_s == pytest.approx(6 / row.seconds)
        assert row.ttft_ms_p50 is not None
        assert row.ttft_ms_p99 is not None
        assert 0 < row.ttft_ms_p50 <= row.ttft_ms_p99
        assert row.inter_token_ms_p99 is not None
        assert row.first_error is None


def test_prompt_length_is_learned_from_the_servers_counts(server: Rehearsal) -> None:
    measure(server, [Answer(["a"])], levels=[1], requests=1)
    lengths = [len(asked["messages"][0]["content"].split()) for asked in server.asked]
    assert lengths == [8, 24, 10]  # 8 words gave 20 tokens and 24 gave 52: two a word, so 24 tokens are 10 words


def test_request_asks_for_exactly_the_tokens_wanted(server: Rehearsal) -> None:
    measure(server, [Answer(["a"])], levels=[1], requests=1)
    asked = server.asked[-1]
    assert (asked["max_tokens"], asked["ignore_eos"], asked["temperature"], asked["stream"]) == (3, True, 0.0, True)
    assert asked["stream_options"] == {"include_usage": True}


def test_prompts_of_a_level_all_differ(server: Rehearsal) -> None:
    measure(server, [Answer(["a"]) for _ in range(8)], levels=[4], requests=8)
    assert len({asked["messages"][0]["content"] for asked in server.asked[2:]}) == 8


def test_deltas_are_counted_when_the_server_sends_no_usage(server: Rehearsal) -> None:
    rows = measure(server, [Answer(["a", "b"], has_usage=False)], levels=[1], requests=1)
    assert rows[0].output_tokens == 2


def test_failed_answers_are_counted_and_told(server: Rehearsal) -> None:
    answers = [
        Answer(status=429, message="full"),
        Answer(["a"], end="break"),
        Answer(["a"], end="error", message="died"),
        Answer(["a", "b"]),
    ]
    row = measure(server, answers, levels=[1], requests=4)[0]
    assert (row.requests, row.errors, row.output_tokens) == (4, 3, 2)
    assert row.first_error is not None
    assert "429" in row.first_error


def test_model_is_the_first_that_the_server_names(server: Rehearsal) -> None:
    assert asyncio.run(served_model(Endpoint.parse(server.url))) == "rehearsal:1b"


def test_unreachable_server_is_told_in_one_line() -> None:
    with pytest.raises(EngineError, match="cannot be reached"):
        asyncio.run(served_model(Endpoint.parse("http://127.0.0.1:9")))


def test_refused_warm_up_ends_the_run(server: Rehearsal) -> None:
    server.answers.append(Answer(status=400, message="no such model"))
    load = Load(Endpoint.parse(server.url), "m", prompt_tokens=24, gen_tokens=3)
    with pytest.raises(EngineError, match="no such model"):
        asyncio.run(run_load(load, [1], lambda level: 1))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, "", False)),
        ("127.0.0.1:8000/v1/", ("127.0.0.1", 8000, "", False)),
        ("https://example.org/api/v1", ("example.org", 443, "/api", True)),
    ],
)
def test_address_is_understood_with_and_without_v1(url: str, expected: tuple[str, int, str, bool]) -> None:
    endpoint = Endpoint.parse(url)
    assert (endpoint.host, endpoint.port, endpoint.prefix, endpoint.is_tls) == expected


def test_address_of_another_kind_is_refused() -> None:
    with pytest.raises(RequestError):
        Endpoint.parse("ftp://example.org")
