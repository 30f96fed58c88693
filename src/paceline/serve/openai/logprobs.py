"""Log-probabilities in the two shapes of OpenAI's API.

The one idea: a token is spelled by its bytes. In chats its `token` string is those bytes as UTF-8 with replacement marks, and
a client that wants exact text reads `bytes`; completions have no `bytes`, so there the string itself is exact. JSON has no
infinity: what is impossible is reported as `FLOOR`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.engine.messages import TokenLogprobs

Spell = Callable[[int], bytes]
"""A token id's bytes."""

FLOOR = -9999.0


def chat_entries(token_ids: Sequence[int], found: Sequence[TokenLogprobs], spell: Spell) -> list[dict[str, Any]]:
    """One entry per token for `choices[].logprobs.content`."""
    return [
        _chat_entry(token_id, one.logprob, spell)
        | {"top_logprobs": [_chat_entry(top_id, logprob, spell) for top_id, logprob in zip(one.top_ids, one.top_logprobs, strict=True)]}
        for token_id, one in zip(token_ids, found, strict=True)
    ]


def _chat_entry(token_id: int, logprob: float, spell: Spell) -> dict[str, Any]:
    spelled = spell(token_id)
    return {"token": spelled.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(spelled)}


def completion_entries(token_ids: Sequence[int], found: Sequence[TokenLogprobs], spell: Spell, offset: int) -> dict[str, Any]:
    """The parallel lists of a completion's `logprobs`; `text_offset` counts characters of the tokens' own spelling."""
    tokens = [_spelled(spell(token_id)) for token_id in token_ids]
    offsets = []
    for token_id in token_ids:
        offsets.append(offset)
        offset += len(spell(token_id).decode("utf-8", "replace"))
    tops = []
    for token_id, token, one in zip(token_ids, tokens, found, strict=True):
        pairs = zip(one.top_ids, one.top_logprobs, strict=True)
        top = {_spelled(spell(top_id)): _finite(logprob) for top_id, logprob in pairs}
        if token_id not in one.top_ids:
            top.setdefault(token, _finite(one.logprob))
        tops.append(top)
    return {
        "tokens": tokens,
        "token_logprobs": [_finite(one.logprob) for one in found],
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def _spelled(data: bytes) -> str:
    """A token as a key: its text, or `bytes:\\xNN…` when it is not UTF-8, so that different tokens stay different."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(logprob: float) -> float:
    return logprob if logprob > FLOOR else FLOOR
