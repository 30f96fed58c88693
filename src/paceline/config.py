"""Configuration: one frozen dataclass per owner, each field with its unit, limits and flag.

The one idea: CLI flags, TOML keys, `LLM(...)` keywords and the reference docs are generated from these fields; nothing is
declared twice. `None` on a field that says "auto" means: the planner resolves it once and records why.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from paceline.errors import RequestError


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with what its flag needs: help text, limits, choices, other spellings."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "choices": choices, "aliases": aliases})


def check_limits(config: Any) -> None:
    """Check every field of a config dataclass against its type and declared limits. Errors: RequestError naming the field."""
    for f in fields(config):
        value, meta = getattr(config, f.name), f.metadata
        if not is_of_kind(value, str(f.type)):
            raise RequestError(f"`{f.name}` is {value!r}; expected {f.type}.", param=f.name)
        if value is None:
            continue
        low, high, choices = meta.get("low"), meta.get("high"), meta.get("choices")
        if choices and value not in choices:
            raise RequestError(f"`{f.name}` is `{value}`; expected one of {', '.join(choices)}.", param=f.name)
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            limits = f"{low if low is not None else '…'} to {high if high is not None else '…'}"
            raise RequestError(f"`{f.name}` is {value}; expected {limits}.", param=f.name)


def is_of_kind(value: object, kind: str) -> bool:
    """Whether a value is of a field's type, as the field's annotation spells it."""
    if value is None:
        return kind.endswith(" | None")
    match kind.removesuffix(" | None"):
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "str":
            return isinstance(value, str)
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is told; every `None` is `auto`."""

    threads: int | None = option(None, "worker threads of the native core (auto: the physical cores)", low=1, high=256)
    backend: str = option("native", "what runs the model", choices=("native", "reference", "null", "hash", "scripted"))
    target: str | None = option(None, "native instruction-set target (auto: the best that this CPU has)")
    max_model_len: int | None = option(None, "longest context in tokens (auto: the model's, as far as the pool allows)", low=16)
    max_num_seqs: int = option(64, "most sequences in a step", low=1, high=4096)
    max_num_batched_tokens: int | None = option(None, "token budget of a step (auto)", low=1, high=65536)
    num_blocks: int | None = option(None, "KV blocks of 16 tokens (auto: from memory_utilization)", low=2)
    memory_utilization: float = option(
        0.85, "share of available memory for weights, KV and arena", low=0.01, high=1.0, aliases=("gpu_memory_utilization",)
    )
    kv_cache_dtype: str = option(
        "auto", "how keys and values are stored (auto: int16; int8 halves their memory)", choices=("auto", "int16", "int8")
    )
    enable_prefix_caching: bool = option(True, "reuse KV blocks of equal prefixes")
    eviction_policy: str = option(
        "value", "which cached blocks go first: those worth least, used longest ago, or computed first", choices=("value", "lru", "fifo")
    )
    max_waiting: int = option(1024, "longest queue; beyond it requests are refused", low=1)
    seed: int = option(0, "seeds requests that bring none of their own", low=0)
    script: str | None = option(None, "for the scripted backend: a JSON file of token id lists (tests only)")

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What the HTTP server is told."""

    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8000, "port to listen on (0: any free one)", low=0, high=65535)
    served_model_name: tuple[str, ...] = option((), "names that requests may use, the first one in answers (auto: the model's)")
    api_key: tuple[str, ...] = option((), "keys of which a client must send one as `Authorization: Bearer KEY`")
    chat_template: str | None = option(None, "a file with a chat template to use instead of the model's")
    max_body_mib: int = option(32, "largest request body in MiB", low=1, high=1024)
    drain_timeout_s: float = option(
        30.0, "longest wait for open requests after the first SIGTERM or Ctrl-C, in seconds", low=0.0, high=3600.0
    )

    def __post_init__(self) -> None:
        check_limits(self)
