"""What the model says reaches the client exactly: split characters, stop strings, ends; streamed and whole alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import SCRIPTS, ScriptedServer
from tests.contract.live_server import chunks_of


def chat(name: str, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": f"[{name}]"}], "temperature": 0, **fields}


def whole(server: ScriptedServer, body: dict[str, Any]) -> dict[str, Any]:
    response = server.live.post("/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def streamed(server: ScriptedServer, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The joined text, and the last choice."""
    chunks = chunks_of(server.live.stream("/v1/chat/completions", body))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    return "".join(choice["delta"].get("content", "") for choice in choices), choices[-1]


def test_characters_split_over_tokens_arrive_whole(scripted: ScriptedServer) -> None:
    text, last = streamed(scripted, chat("emoji"))
    assert text == SCRIPTS["emoji"]
    assert "\ufffd" not in text
    assert last["finish_reason"] == "stop"
    assert whole(scripted, chat("emoji"))["message"]["content"] == text


@pytest.mark.parametrize("stop", ["STOP", "o STOP t", "S", "two STOP three", "e"])
def test_nothing_of_a_stop_string_leaks(scripted: ScriptedServer, stop: str) -> None:
    text, last = streamed(scripted, chat("stop", stop=stop))
    choice = whole(scripted, chat("stop", stop=[stop]))
    assert text == choice["message"]["content"] == SCRIPTS["stop"].partition(stop)[0]
    assert (last["finish_reason"], last["stop_reason"]) == (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_the_stop_string_is_there_once_when_it_is_wanted(scripted: ScriptedServer) -> None:
    body = chat("stop", stop="STOP", include_stop_str_in_output=True)
    assert streamed(scripted, body)[0] == whole(scripted, body)["message"]["content"] == "one two STOP"


def test_what_looked_like_a_stop_string_is_not_lost(scripted: ScriptedServer) -> None:
    body = chat("held", stop="STOP")
    assert streamed(scripted, body)[0] == whole(scripted, body)["message"]["content"] == SCRIPTS["held"]


def test_a_stop_token_ends_the_answer_and_is_no_part_of_it(scripted: ScriptedServer) -> None:
    (token_id,) = scripted.tokenizer.encode("w", add_special=False, parse_special=False)
    text, last = streamed(scripted, chat("stop", stop_token_ids=[token_id]))
    assert (text, last["finish_reason"], last["stop_reason"]) == ("one t", "stop", token_id)


def test_marks_are_hidden_unless_wanted(scripted: ScriptedServer) -> None:
    assert streamed(scripted, chat("mark"))[0] == "a  b"
    assert streamed(scripted, chat("mark", skip_special_tokens=False))[0] == SCRIPTS["mark"]


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5])
def test_short_answers_have_all_their_parts(scripted: ScriptedServer, max_tokens: int) -> None:
    body = chat("stop", max_tokens=max_tokens, stream_options={"include_usage": True})
    chunks = chunks_of(scripted.live.stream("/v1/chat/completions", body))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]].count("length") == 1
    assert chunks[-1]["usage"]["completion_tokens"] == max_tokens
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_an_answer_of_nothing_is_still_an_answer(scripted: ScriptedServer) -> None:
    text, last = streamed(scripted, chat("empty"))
    assert (text, last["finish_reason"]) == ("", "stop")
    assert whole(scripted, chat("empty"))["message"]["content"] == ""


def test_logprobs_are_the_same_streamed_and_whole(scripted: ScriptedServer) -> None:
    body = chat("emoji", logprobs=True, top_logprobs=3)
    chunks = chunks_of(scripted.live.stream("/v1/chat/completions", body))
    entries = [entry for chunk in chunks if (found := chunk["choices"][0]["logprobs"]) for entry in found["content"]]
    assert entries == whole(scripted, body)["logprobs"]["content"]
    assert bytes(byte for entry in entries[: len(SCRIPTS["emoji"].encode())] for byte in entry["bytes"]).decode() == SCRIPTS["emoji"]


def test_a_deadline_that_passes_ends_the_answer_with_its_reason(scripted: ScriptedServer) -> None:
    choice = whole(scripted, chat("stop", paceline={"deadline_ms": 0.001}))
    assert choice["finish_reason"] == "deadline"


def test_a_control_token_typed_by_a_user_stays_text(scripted: ScriptedServer) -> None:
    typed = {"messages": [{"role": "user", "content": "<|im_end|>"}], "max_tokens": 1}
    plain = {"messages": [{"role": "user", "content": "x" * len("<|im_end|>")}], "max_tokens": 1}
    counts = [scripted.live.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"] for body in (typed, plain)]
    assert counts[0] == counts[1]
