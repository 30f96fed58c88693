"""Many clients of the real model at once: every stream is whole, none changes another, and who leaves takes nothing along."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from paceline.formats.open import open_checkpoint
from paceline.serve.server import model_text
from tests.contract.live_server import LiveServer, chunks_of

NUM_CLIENTS = 32
SUBJECTS = ("the sea", "a mountain", "bread", "a clock", "rain", "the moon", "a bicycle", "glass")


def chat(number: int) -> dict[str, Any]:
    subject = SUBJECTS[number % len(SUBJECTS)]
    return {
        "messages": [{"role": "user", "content": f"Client {number}: say something about {subject}."}],
        "temperature": 0,
        "max_tokens": 6 + number % 7,
        "stream_options": {"include_usage": True},
    }


async def stream(client: httpx.AsyncClient, body: dict[str, Any]) -> list[str]:
    async with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
        assert answer.status_code == 200
        return [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]


async def streams(url: str, bodies: list[dict[str, Any]]) -> list[list[str]]:
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        return await asyncio.gather(*(stream(client, body) for body in bodies))


def text_of(events: list[str]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_of(events) if chunk["choices"])


def test_thirty_two_streamed_chats_all_finish_with_right_usage_and_one_done(smollm2: LiveServer, smollm2_path: Path) -> None:
    bodies = [chat(number) for number in range(NUM_CLIENTS)]
    answers = asyncio.run(streams(smollm2.url, bodies))
    encoder = model_text(open_checkpoint(smollm2_path), None).chat
    for body, events in zip(bodies, answers, strict=True):
        chunks = chunks_of(events)
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["finish_reason"]]
        usage = chunks[-1]["usage"]
        assert usage["prompt_tokens"] == len(encoder.render_to_ids(body["messages"]))
        assert reasons in (["length"], ["stop"])
        if reasons == ["length"]:
            assert usage["completion_tokens"] == body["max_tokens"]
        assert usage["completion_tokens"] <= body["max_tokens"]
    for number in (0, 13, 31):
        assert text_of(smollm2.stream("/v1/chat/completions", bodies[number])) == text_of(answers[number])


def test_clients_that_leave_free_their_blocks_at_once(smollm2: LiveServer) -> None:
    base = smollm2.metric("paceline:kv_blocks_used")
    endless = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with httpx.Client(base_url=smollm2.url, timeout=60) as client:
        with client.stream("POST", "/v1/completions", json=endless) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert smollm2.metric("vllm:num_requests_running") == 1
        left = time.monotonic()
        until_idle(smollm2, base)
        assert time.monotonic() - left < 1.0, "a step takes some tens of milliseconds"


def test_a_client_that_leaves_while_queued_or_computing_costs_nothing_later(smollm2: LiveServer) -> None:
    base = smollm2.metric("paceline:kv_blocks_used")

    async def leave() -> None:
        body = {"prompt": "word " * 3000, "max_tokens": 2000}
        async with httpx.AsyncClient(base_url=smollm2.url, timeout=60) as client:
            waiting = [asyncio.create_task(client.post("/v1/completions", json=body | {"seed": seed})) for seed in range(4)]
            await asyncio.wait(waiting, timeout=0.3)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(leave())
    until_idle(smollm2, base)


def until_idle(server: LiveServer, base: float) -> None:
    """Wait until nothing runs and the used blocks are back at the base line."""
    deadline, pause = time.monotonic() + 10, threading.Event()
    while server.metric("vllm:num_requests_running") or server.metric("vllm:num_requests_waiting"):
        assert time.monotonic() < deadline
        pause.wait(0.01)
    assert server.metric("paceline:kv_blocks_used") <= base


def test_health_stays_quick_while_a_long_prompt_is_read(smollm2: LiveServer) -> None:
    body = json.dumps({"prompt": "a " * 500_000}).encode()
    sender = threading.Thread(target=lambda: httpx.post(smollm2.url + "/v1/completions", content=body, timeout=60))
    sender.start()
    waits = []
    while sender.is_alive():
        asked = time.monotonic()
        assert smollm2.get("/health").status_code == 200
        waits.append(time.monotonic() - asked)
    assert sorted(waits)[len(waits) // 2] < 0.1
