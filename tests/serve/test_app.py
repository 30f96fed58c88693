"""The application over a looped engine: routes, names, keys, limits, leaving clients, and the engine's death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.config import ServeConfig
from paceline.serve.state import ModelText
from tests.engine.looped_engine import LoopedEngine
from tests.serve.looped_server import LoopedServer, looped_server, tiny_text, until

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
ENDLESS = CHAT | {"max_tokens": None, "n": 3}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return tiny_text(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server(text: ModelText) -> Iterator[LoopedServer]:
    with looped_server(text, LoopedEngine()) as running:
        yield running


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert len(response.content) < 8192
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_chat_is_answered_with_usage_timings_and_a_header(server: LoopedServer) -> None:
    response = server.http.post("/v1/chat/completions", json=CHAT)
    body = response.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 5
    assert body["timings"]["total_ms"] > 0
    assert "total;dur=" in response.headers["server-timing"]


def test_every_name_of_the_model_is_accepted_and_no_other(server: LoopedServer) -> None:
    http = server.http
    for name in ("tiny", "alias"):
        assert http.post("/v1/chat/completions", json=CHAT | {"model": name}).json()["model"] == name
    response = http.post("/v1/chat/completions", json=CHAT | {"model": "other"})
    assert (response.status_code, error_of(response)["code"], error_of(response)["param"]) == (404, "model_not_found", "model")
    assert http.get("/v1/models/alias").json()["id"] == "tiny"
    assert http.get("/v1/models/other").status_code == 404
    assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["tiny"]


def test_unknown_paths_and_methods_are_errors_in_the_same_shape(server: LoopedServer) -> None:
    http = server.http
    assert error_of(http.get("/v1/nothing"))["code"] == "not_found"
    response = http.get("/v1/chat/completions")
    assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")


def test_health_and_version_say_what_they_are_for(server: LoopedServer) -> None:
    assert server.http.get("/health").json() == {"status": "ready", "model": "tiny"}
    assert set(server.http.get("/version").json()) == {"version"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_is_events_and_one_done(server: LoopedServer, path: str) -> None:
    response = server.http.post(path, json=CHAT | {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 5
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1] if chunk["choices"][0]["finish_reason"]] == ["length"]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_frees_its_sequences(text: ModelText, is_streamed: bool) -> None:
    with looped_server(text, LoopedEngine(max_model_len=10**9)) as server:
        if is_streamed:
            with server.http.stream("POST", "/v1/chat/completions", json=ENDLESS | {"stream": True}) as response:
                lines = response.iter_lines()
                next(lines)
                assert server.state.num_answering == 1
        else:
            with pytest.raises(httpx.ReadTimeout):
                server.http.post("/v1/chat/completions", json=ENDLESS, timeout=httpx.Timeout(30, read=0.1))
        until(lambda: server.state.num_answering == 0, "the answer is over")
        until(lambda: not server.engine.has_work(), "the engine is idle")
        until(lambda: server.state.client.stats.num_blocks_used == 0, "the gauges say so")
        assert server.http.post("/v1/chat/completions", json=CHAT).status_code == 200


@pytest.mark.parametrize("body", [{"prompt": ["a", "b", "c"]}, {"prompt": "a", "n": 3}])
def test_a_call_that_could_never_be_held_is_400_since_it_would_be_sent_again(text: ModelText, body: dict[str, Any]) -> None:
    with looped_server(text, LoopedEngine(), max_open=2) as server:
        response = server.http.post("/v1/completions", json=body)
        assert (response.status_code, error_of(response)["param"]) == (400, "n")


@pytest.mark.parametrize("is_streamed", [True, False])
def test_what_the_engines_queue_refuses_is_429_with_retry_after_before_the_first_byte(text: ModelText, is_streamed: bool) -> None:
    with looped_server(text, LoopedEngine(refuses=True)) as server:
        response = server.http.post("/v1/chat/completions", json=CHAT | {"stream": is_streamed})
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert error_of(response)["type"] == "rate_limit_error"
        assert error_of(response)["message"] == "The queue is full."


def test_the_engines_death_ends_a_stream_with_an_error_event(text: ModelText, capfd: pytest.CaptureFixture[str]) -> None:
    with looped_server(text, LoopedEngine(fails_at_step=3)) as server:
        lines = server.http.post("/v1/chat/completions", json=CHAT | {"stream": True}).text.split("\n\n")
        assert lines[-2] != "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "engine_error"
        health = server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "dead")
        assert server.http.post("/v1/chat/completions", json=CHAT).status_code == 503
    assert "planted" in capfd.readouterr().err


def test_a_draining_server_takes_no_new_requests(text: ModelText) -> None:
    with looped_server(text, LoopedEngine()) as server:
        server.state.is_draining = True
        response = server.http.post("/v1/chat/completions", json=CHAT)
        assert response.status_code == 503
        assert "retry-after" in response.headers
        assert server.http.get("/health").json()["status"] == "draining"


def test_a_missing_or_wrong_key_is_401(text: ModelText) -> None:
    with looped_server(text, LoopedEngine(), ServeConfig(api_key=("key-1", "key-2"))) as server:
        for given in ("", "Bearer", "Bearer wrong", "bearer key-1x", "Basic key-1", "Bearer kéy", "key-1"):
            response = server.http.get("/v1/models", headers=[(b"authorization", given.encode())] if given else [])
            assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
        assert server.http.get("/v1/models", headers={"authorization": "Bearer key-2"}).status_code == 200
        assert server.http.get("/health").status_code == 200


def test_headers_over_the_limit_are_431(server: LoopedServer) -> None:
    assert server.http.get("/health", headers={f"x-{number}": "a" for number in range(200)}).status_code == 431
    assert server.http.get("/health", headers={"x-big": "a" * 60_000}).status_code == 200


def test_a_body_over_the_limit_is_413_and_the_server_lives(text: ModelText) -> None:
    with looped_server(text, LoopedEngine(), ServeConfig(max_body_mib=1)) as server:
        big = {"prompt": "a" * (2 << 20)}
        response = server.http.post("/v1/completions", json=big)
        assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")
        assert server.http.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_a_completion_that_names_no_limit_has_what_the_context_leaves(server: LoopedServer) -> None:
    response = server.http.post("/v1/completions", json={"prompt": [[1] * 120, [1]]})
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] == 2 * 8
    refused = server.http.post("/v1/completions", json={"prompt": [1] * 128})
    assert "asks for" not in error_of(refused)["message"]
    asked = server.http.post("/v1/completions", json={"prompt": [1] * 120, "max_tokens": 9})
    assert "asks for 9 more" in error_of(asked)["message"]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_prompt_over_the_context_is_400_with_both_numbers(server: LoopedServer, is_streamed: bool) -> None:
    response = server.http.post("/v1/completions", json={"prompt": [1] * 500, "stream": is_streamed})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")
    assert "128" in error["message"]
    assert "500" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [512]}, "stop_token_ids"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"min_tokens": 6}, "min_tokens"),
        ({"paceline": {"deadline_ms": 0}}, "paceline.deadline_ms"),
        ({"paceline": {"deadline_ms": 1e15}}, "paceline.deadline_ms"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ],
)
def test_a_field_that_cannot_be_served_is_400_with_its_name(server: LoopedServer, fields: dict[str, Any], param: str) -> None:
    response = server.http.post("/v1/chat/completions", json=CHAT | fields)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_unknown_fields_are_named_in_the_answer(server: LoopedServer) -> None:
    body = server.http.post("/v1/chat/completions", json=CHAT | {"foo": 1}).json()
    assert body["warnings"] == ["`foo` is not a known field; it was ignored."]


def test_the_drawn_seed_is_told_and_a_given_one_kept(server: LoopedServer) -> None:
    http = server.http
    drawn = [http.post("/v1/chat/completions", json=CHAT).json()["paceline"]["seed"] for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert http.post("/v1/chat/completions", json=CHAT | {"seed": 7}).json()["paceline"]["seed"] == 7


def test_metrics_follow_the_requests(text: ModelText) -> None:
    with looped_server(text, LoopedEngine()) as server:
        server.http.post("/v1/chat/completions", json=CHAT | {"n": 2})
        exposed = server.http.get("/metrics").text
    assert 'vllm:generation_tokens_total{model_name="tiny"} 10.0' in exposed
    assert 'vllm:request_success_total{finished_reason="length",model_name="tiny"} 2.0' in exposed


def test_the_page_is_served_with_its_policy(server: LoopedServer) -> None:
    response = server.http.get("/")
    assert response.status_code == 200
    assert "default-src 'self'" in response.headers["content-security-policy"]


def test_the_text_thread_is_used_for_long_prompts_only(server: LoopedServer, tmp_path: Path) -> None:
    assert server.http.post("/v1/completions", json={"prompt": "a " * 40}).status_code == 200
    response = server.http.post("/v1/completions", json={"prompt": "a " * 200_000})
    assert error_of(response)["code"] == "context_length_exceeded"
