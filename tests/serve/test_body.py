"""A body is read within limits, and what is wrong with it is said shortly, with the field's name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from paceline.errors import RequestError
from paceline.serve import body as body_module
from paceline.serve.body import MAX_VALUES, decode_body, read_body
from paceline.serve.failures import BodyTooLargeError, SlowBodyError, error_body
from paceline.serve.openai.schema import ChatRequest, CompletionRequest

MESSAGES = [{"role": "user", "content": "hi"}]


def read(parts: list[bytes], headers: dict[str, str] | None = None, *, max_bytes: int = 100, leaves: bool = False) -> tuple[bytes, int]:
    """What is read of a body that comes in parts, and how many parts were taken."""
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        if leaves and taken > len(parts):
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts[taken - 1], "more_body": leaves or taken < len(parts)}

    raw_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": raw_headers}, receive)
    return asyncio.run(read_body(request, max_bytes)), taken


def test_a_body_comes_in_any_number_of_parts() -> None:
    assert read([b"{", b'"a"', b": 1}"]) == (b'{"a": 1}', 3)


def test_a_claimed_length_over_the_limit_is_refused_before_reading() -> None:
    with pytest.raises(BodyTooLargeError, match="101 bytes; the limit is 100"):
        read([b"x" * 101], {"content-length": "101"})
    with pytest.raises(BodyTooLargeError):
        read([], {"content-length": "101", "expect": "100-continue"})


def test_a_lying_length_is_refused_where_the_limit_is_passed() -> None:
    with pytest.raises(BodyTooLargeError):
        read([b"x" * 60] * 1000, {"content-length": "10"})


def test_a_refused_body_is_taken_to_its_end_so_that_the_answer_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [b"x" * 60] * 1000
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": parts[0], "more_body": taken < 1000}

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_body(request, 100))
    assert taken == 1000
    taken = 0
    monkeypatch.setattr(body_module, "MAX_DISCARDED_BYTES", 600)
    with pytest.raises(BodyTooLargeError):
        asyncio.run(read_body(request, 100))
    assert taken <= 13


def test_a_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_PAUSE_S", 0.05)
    monkeypatch.setattr(body_module, "MIN_BYTES_PER_S", 10**9)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x", "more_body": True}

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    with pytest.raises(SlowBodyError):
        asyncio.run(read_body(request, 10**9))


@pytest.mark.parametrize("unit", [b"1,", b"[],", b"{},", b'"",', b'{"a":[]},', rb'"\\",', rb'"\\\"",', b"[", rb'["a\"b"],'])
def test_a_body_of_too_many_values_is_refused_before_they_are_made(unit: bytes) -> None:
    body = b'{"messages": [], "user": [' + unit * (MAX_VALUES + 1) + b"1]}"
    with pytest.raises(RequestError, match="JSON values"):
        decode_body(body, ChatRequest)


@pytest.mark.parametrize("text", [",", "[{", '"', "\\", '",', '\\",', "a"])
def test_a_text_of_any_characters_counts_as_one_value(text: str) -> None:
    content = text * MAX_VALUES
    body, _ = decode_body(json.dumps({"messages": [{"role": "user", "content": content}]}).encode(), ChatRequest)
    assert body.messages[0]["content"] == content


def test_a_compressed_body_is_refused() -> None:
    with pytest.raises(RequestError, match="compressed"):
        read([b""], {"content-encoding": "gzip"})


def test_a_client_that_leaves_while_sending_ends_the_reading() -> None:
    with pytest.raises(ClientDisconnect):
        read([b"{"], leaves=True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"null", None),
        (b"[]", None),
        (b'"text"', None),
        (b"{}", None),
        (b"[" * 100_000, None),
        (b'{"messages": [], "x": ' + b"[" * 100_000 + b"}", None),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', None),
        (b'{"messages": "hi"}', "messages"),
        (b'{"messages": [1]}', "messages"),
        (b'{"messages": [], "n": true}', "n"),
        (b'{"messages": [], "n": 1.5}', "n"),
        (b'{"messages": [], "temperature": NaN}', None),
        (b'{"messages": [], "temperature": 1e999}', "temperature"),
        (b'{"messages": [], "temperature": "hot"}', "temperature"),
        (b'{"messages": [], "stop": ["a", null]}', "stop"),
        (b'{"messages": [], "logit_bias": {"x": 1}}', "logit_bias"),
        (b'{"messages": [], "priority": 99999999999}', "priority"),
        (b'{"messages": [], "paceline": {"clas": "batch"}}', "paceline"),
        (b'{"messages": [], "paceline": {"class": "fast"}}', "paceline"),
    ],
)
def test_a_wrong_body_is_one_short_error_that_names_the_field(body: bytes, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        decode_body(body, ChatRequest)
    assert caught.value.param == param
    assert len(error_body(caught.value)) < 8192


def test_unknown_fields_are_accepted_and_named() -> None:
    body, warnings = decode_body(json.dumps({"messages": MESSAGES, "zebra": 1, "apple": {"a": [1]}}).encode(), ChatRequest)
    assert body.messages[0]["content"] == "hi"
    assert warnings == ["`apple` is not a known field; it was ignored.", "`zebra` is not a known field; it was ignored."]


def test_thousands_of_unknown_fields_make_a_short_list() -> None:
    fields = {f"{'x' * 500}{number}": 0 for number in range(12_000)}
    _, warnings = decode_body(json.dumps({"messages": MESSAGES, **fields}).encode(), ChatRequest)
    assert warnings[-1] == "11984 more unknown fields were ignored."
    assert sum(map(len, warnings)) < 4096


def test_null_means_not_given() -> None:
    body, warnings = decode_body(b'{"prompt": "a", "n": null, "stop": null, "stream_options": null, "logit_bias": null}', CompletionRequest)
    assert (body.n, body.stop, body.stream_options, body.logit_bias, warnings) == (None, None, None, None, [])
