"""CPU time of the HTTP process for one streamed token: `python -m benchmarks.stream_cost`.

Aim: 25 µs. The engine is left out: frames of one token per stream are fed as a child would send them, one at a time, and each is
written to a real socket before the next comes. So nothing is merged, as with a model that is slower than its front.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import uvicorn

from paceline import __version__
from paceline.cli.model import find_model
from paceline.config import ServeConfig
from paceline.engine.client import RoutedClient
from paceline.engine.frames import decode_report, encode_frame
from paceline.engine.messages import PROTOCOL_VERSION, Command, EngineInfo, EngineStats, Frame, Ready, Submit, Tokens
from paceline.formats.open import open_checkpoint
from paceline.serve.server import model_text, open_socket, uvicorn_config
from paceline.serve.state import ModelNames, ServerState

INFO = EngineInfo("fed", "llama", "fed", 49152, 10**9, 64, 16, 64, 256, 1, 0.0)
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "stream": True}
TURNS_PER_FRAME = 3
"""Turns of the event loop in which every stream has woken and written."""

READER = """
import asyncio, json, sys
async def read(port, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n"
    writer.write(head.encode() + body)
    while await reader.read(65536):
        pass
    writer.close()
async def main(port, count, body):
    await asyncio.gather(*(read(port, body.encode()) for _ in range(count)))
asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
"""


class FedClient(RoutedClient):
    """A client of no engine: it remembers what was submitted and is fed frames."""

    def __init__(self) -> None:
        super().__init__(max_open=1024)
        self.request_ids: list[str] = []
        self._receive(Ready(PROTOCOL_VERSION, INFO))

    def _send(self, command: Command) -> None:
        if isinstance(command, Submit):
            self.request_ids.append(command.request.id)

    def feed(self, payload: bytes) -> None:
        """Take one frame's payload, as from a socket."""
        self._receive(decode_report(payload))

    def end(self) -> None:
        """End every stream."""
        self._router.end_all("The measurement is over.")


async def cost_us(model: Path, num_streams: int, num_tokens: int) -> float:
    """Microseconds of CPU per token and stream."""
    client = FedClient()
    state = ServerState(ServeConfig(), client, ModelNames("fed", frozenset(), "fed"), seed=0)  # type: ignore[arg-type]  # never started
    state.model = model_text(open_checkpoint(model), None)
    token_ids = state.model.tokenizer.encode("The sea is wide and the ships are small.", add_special=False, parse_special=False)
    listener = open_socket("127.0.0.1", 0)
    http = uvicorn.Server(uvicorn_config(state))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    readers = subprocess.Popen([sys.executable, "-c", READER, str(port), str(num_streams), json.dumps(BODY)])
    while len(client.request_ids) < num_streams:
        await asyncio.sleep(0.01)
    spent_s = 0.0
    for number in range(num_tokens):
        events = [Tokens(request_id, 0, [token_ids[number % len(token_ids)]]) for request_id in client.request_ids]
        payload = encode_frame(Frame([*events], EngineStats()))[4:]
        started = time.thread_time()
        client.feed(payload)
        for _ in range(TURNS_PER_FRAME):
            await asyncio.sleep(0)
        spent_s += time.thread_time() - started
        await asyncio.sleep(0.004)
    client.end()
    while state.num_answering:
        await asyncio.sleep(0.01)
    readers.wait()
    http.should_exit = True
    await serving
    state.close()
    return 1e6 * spent_s / num_tokens / num_streams


def main() -> int:
    """Measure and print one JSON object."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--model", default="smollm2:135m")
    flags.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    flags.add_argument("--tokens", type=int, default=300)
    options = flags.parse_args()
    model = find_model(options.model)
    rows = [{"streams": count, "us_per_token": round(asyncio.run(cost_us(model, count, options.tokens)), 1)} for count in options.streams]
    print(json.dumps({"version": __version__, "model": options.model, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
