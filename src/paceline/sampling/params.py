"""How a request wants its tokens picked: the one validated record behind every door (HTTP, CLI, `LLM`)."""

from __future__ import annotations

import math
import reprlib
from functools import cache

import msgspec

from paceline.errors import RequestError

MAX_N = 128
MAX_STOP = 4
MAX_STOP_BYTES = 4096
MAX_LOGPROBS = 20
MAX_BIAS = 1024
MAX_STOP_TOKENS = 1024
MIN_REPETITION_PENALTY = 0.01
"""Less would make logits overflow float32, and a row of infinities has no order."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling of one request; validated when it is made, by whichever door. Errors: RequestError naming the field

    Order on a logits row: min_tokens, logit_bias, repetition, frequency and presence penalties, temperature, min_p, top_k,
    top_p; then argmax(log p + Gumbel noise). temperature < 1e-6: argmax of the processed logits.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    """Alternatives to report per token (0: only the chosen one), or None for no logprobs."""

    def __post_init__(self) -> None:
        _settle_types(self)
        for field, is_valid, expected in (
            ("n", 1 <= self.n <= MAX_N, f"1 to {MAX_N}"),
            ("temperature", _within(self.temperature, 0.0, 100.0), "0 to 100"),
            ("top_p", _within(self.top_p, 0.0, 1.0) and self.top_p > 0.0, "more than 0, at most 1"),
            ("top_k", self.top_k >= -1, "-1 or more (-1, 0 and more than any vocabulary mean off)"),
            ("min_p", _within(self.min_p, 0.0, 1.0), "0 to 1"),
            ("presence_penalty", _within(self.presence_penalty, -2.0, 2.0), "-2 to 2"),
            ("frequency_penalty", _within(self.frequency_penalty, -2.0, 2.0), "-2 to 2"),
            (
                "repetition_penalty",
                _within(self.repetition_penalty, MIN_REPETITION_PENALTY, 100.0),
                f"{MIN_REPETITION_PENALTY} to 100",
            ),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**64, "a 64-bit integer"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "1 or more"),
            ("min_tokens", self.min_tokens >= 0, "0 or more"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS, f"0 to {MAX_LOGPROBS}"),
            ("stop", len(self.stop) <= MAX_STOP, f"at most {MAX_STOP} strings"),
            (
                "stop",
                all(1 <= _num_bytes(s) <= MAX_STOP_BYTES for s in self.stop),
                f"strings of 1 to {MAX_STOP_BYTES} bytes of valid Unicode",
            ),
            ("stop_token_ids", len(self.stop_token_ids) <= MAX_STOP_TOKENS, f"at most {MAX_STOP_TOKENS} ids"),
            ("logit_bias", len(self.logit_bias) <= MAX_BIAS, f"at most {MAX_BIAS} entries"),
            ("logit_bias", all(_within(b, -100.0, 100.0) for b in self.logit_bias.values()), "values from -100 to 100"),
        ):
            if not is_valid:
                raise RequestError(f"`{field}` is {_shown(getattr(self, field))}; expected {expected}.", param=field, code="invalid_value")

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids outside the vocabulary. Errors: RequestError naming the field."""
        for field, ids in (("stop_token_ids", self.stop_token_ids), ("logit_bias", tuple(self.logit_bias))):
            wrong = next((i for i in ids if not 0 <= i < vocab_size), None)
            if wrong is not None:
                raise RequestError(
                    f"`{field}` has token id {wrong}; the vocabulary is 0 to {vocab_size - 1}.", param=field, code="invalid_value"
                )


@cache
def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(SamplingParams)


def _settle_types(params: SamplingParams) -> None:
    """Bring each field to its type: a list to a tuple, one stop string to a tuple of it, None to the default.

    Python callers are not held to annotations, and a wrong type must be said here, not by whatever stumbles over it in a step.
    Errors:  RequestError naming the field
    """
    for field in _fields():
        value = getattr(params, field.name)
        if field.name == "stop" and isinstance(value, str):
            value = (value,)
        elif value is None:
            value = {} if field.name == "logit_bias" else field.default
        try:
            msgspec.structs.force_setattr(params, field.name, msgspec.convert(value, field.type))
        except (msgspec.ValidationError, ValueError):
            kind = str(field.type).removeprefix("<class '").removesuffix("'>")
            raise RequestError(f"`{field.name}` is {_shown(value)}; expected {kind}.", param=field.name, code="invalid_value") from None


def _shown(value: object) -> str:
    """A value as a message may show it: never long, and without printing all of a huge one."""
    try:
        return reprlib.repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return "a very large number"


def _within(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low <= value <= high


def _num_bytes(text: str) -> int:
    """The length in UTF-8; 0 for text that has none (a lone surrogate)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
