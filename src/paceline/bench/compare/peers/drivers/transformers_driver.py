"""transformers' side of a comparison, run by the interpreter of its own environment: FILE THREADS, then a workload a line.

The one idea: the model is stepped by hand with its own cache, all streams in one batch, greedily; prompts are equally long, so there is
no padding. The weights are the file's, dequantised to bfloat16.

It imports nothing of Paceline, and Paceline imports nothing of it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")


def load(path: Path, threads: int) -> Any:
    """The model in bfloat16."""
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.bfloat16).eval()


def run(model: Any, workload: dict[str, Any]) -> float:
    """Seconds of one run."""
    with torch.inference_mode():
        prompts = torch.randint(0, model.config.vocab_size, (workload["streams"], workload["prompt_tokens"]))
        started = time.monotonic()
        output = model(prompts, use_cache=True, logits_to_keep=1)
        token_ids = output.logits.argmax(-1)
        num_steps = workload["new_tokens"] - 1
        if workload["kind"] == "decode":
            started, num_steps = time.monotonic(), workload["new_tokens"]
        for _ in range(num_steps):
            output = model(token_ids, past_key_values=output.past_key_values, use_cache=True)
            token_ids = output.logits.argmax(-1)
        return time.monotonic() - started


def main() -> None:
    """Load, warm up, and answer each line until stdin ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints
    model = load(Path(sys.argv[1]), int(sys.argv[2]))
    run(model, {"kind": "chats", "streams": 2, "prompt_tokens": 32, "new_tokens": 4})
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        workload = json.loads(line)
        try:
            reply: dict[str, Any] = {"seconds": [run(model, workload) for _ in range(workload["repeat"])]}
        except Exception as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
