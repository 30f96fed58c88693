"""From the start of the `paceline serve` process to the first token at a client: `python -m benchmarks.startup`.

Promise: the median of seven starts is at most 1.5 s with SmolLM2 on disk. The file is in the page cache from the second start on;
the first start is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from benchmarks.server import running_server
from paceline.bench.http_stream import Endpoint, read_events
from paceline.bench.quantiles import median

PROMISE_S = 1.5
BODY = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4, "temperature": 0, "stream": True}


async def first_token(url: str, model: str) -> float:
    """The moment at which the first text of an answer arrives."""
    async for data in read_events(Endpoint.parse(url), "/v1/chat/completions", json.dumps(BODY | {"model": model}).encode()):
        choices = json.loads(data)["choices"] if data != b"[DONE]" else []
        if choices and choices[0]["delta"].get("content"):
            return time.monotonic()
    raise RuntimeError("the answer held no text")


def measure(model: str) -> dict[str, float]:
    """One start: seconds until the server is ready, and until the first token."""
    with running_server(model) as server:
        arrived = asyncio.run(first_token(server.url, model))
        return {"ready_s": round(server.ready - server.started, 3), "first_token_s": round(arrived - server.started, 3)}


def main() -> int:
    """Measure; 1 when the promise is broken."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--model", default="smollm2:135m")
    flags.add_argument("--starts", type=int, default=7)
    options = flags.parse_args()
    starts = [measure(options.model) for _ in range(options.starts)]
    result = median([start["first_token_s"] for start in starts])
    print(json.dumps({"model": options.model, "promise_s": PROMISE_S, "median_first_token_s": result, "starts": starts}))
    return 0 if result <= PROMISE_S else 1


if __name__ == "__main__":
    sys.exit(main())
