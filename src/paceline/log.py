"""Structured log lines on stderr: one event a line, `key=value`, never prompts or outputs.

12:00:01.123 info  engine.ready  model=smollm2:135m num_blocks=512
"""

from __future__ import annotations

import sys
import time

from paceline import env

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def log(level: str, event: str, **fields: object) -> None:
    """Write one event with its fields to stderr when `level` is at least `PACELINE_LOG`.

    Errors:  KeyError for an unknown level (our bug)
    """
    if LEVELS[level] < LEVELS.get(env.log_level(), 20):
        return
    now = time.time()
    clock = time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03d}"
    tail = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
    print(f"{clock} {level:<7} {event} {tail}", file=sys.stderr, flush=True)


def _quoted(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return repr(text) if " " in text or "\n" in text or "=" in text else text
