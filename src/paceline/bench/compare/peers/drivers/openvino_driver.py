"""OpenVINO GenAI's side of a comparison, run by the interpreter of its own environment: FILE THREADS, then a workload a line.

The one idea: its continuous-batching pipeline is driven step by step, with a token budget that takes all prompts in one step, so the
first step is the prompts' and every later one advances all streams; which step ended when is all that is noted.

It imports nothing of Paceline, and Paceline imports nothing of it.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from typing import Any

import numpy as np

openvino: Any = importlib.import_module("openvino")
genai: Any = importlib.import_module("openvino_genai")

CACHE_GIB = 1
TOKEN_BUDGET = 4096
PROMPT_IDS = range(1000, 20000)
"""Plain tokens in any vocabulary that it reads."""


def load(path: str, threads: int) -> Any:
    """The pipeline, without a prefix cache."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GIB
    scheduler.max_num_batched_tokens = TOKEN_BUDGET
    scheduler.enable_prefix_caching = False
    return genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})


def step_ends(pipeline: Any, workload: dict[str, Any], new_tokens: int, rng: random.Random) -> list[float]:
    """Seconds from the start to the end of each step. Errors: ValueError when the answers are not as long as asked"""
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = new_tokens, True, False
    started = time.monotonic()
    handles = []
    for number in range(workload["streams"]):
        prompt = np.array([rng.choices(PROMPT_IDS, k=workload["prompt_tokens"])], dtype=np.int64)
        handles.append(pipeline.add_request(number, openvino.Tensor(prompt), config))
    ends = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        ends.append(time.monotonic() - started)
    lengths = [len(output.generated_ids) for handle in handles for output in handle.read_all()]
    if lengths != [new_tokens] * workload["streams"]:
        raise ValueError(f"the answers have {lengths} tokens; expected {new_tokens} each")
    return ends


def run(pipeline: Any, workload: dict[str, Any], rng: random.Random) -> float:
    """Seconds of one run. Errors: ValueError when the steps are not what the clock counts on"""
    if workload["kind"] != "decode":
        return step_ends(pipeline, workload, workload["new_tokens"], rng)[-1]
    ends = step_ends(pipeline, workload, workload["new_tokens"] + 1, rng)
    if len(ends) != workload["new_tokens"] + 1:
        raise ValueError(f"{len(ends)} steps; expected one for the prompts and {workload['new_tokens']} more")
    return ends[-1] - ends[0]


def main() -> None:
    """Load, warm up, and answer each line until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints
    rng = random.Random()
    pipeline = load(sys.argv[1], int(sys.argv[2]))
    run(pipeline, {"kind": "chats", "streams": 2, "prompt_tokens": 32, "new_tokens": 4}, rng)
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        workload = json.loads(line)
        try:
            reply: dict[str, Any] = {"seconds": [run(pipeline, workload, rng) for _ in range(workload["repeat"])]}
        except Exception as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
