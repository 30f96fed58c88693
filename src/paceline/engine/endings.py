"""Which token is a sequence's last: end tokens, stop tokens, stop strings as bytes, the length.

The one idea: an ending is a function of the new token and the count, so the scheduler needs no text. Stop strings are
matched over the bytes of the generated tokens, across token borders.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.engine.request import Request
from paceline.engine.sequence import EndCheck, Ending
from paceline.text.stop import StopMatcher

TokenBytes = Callable[[int, bool], bytes]
"""The bytes of a token that a client gets to see; the flag: special tokens show nothing."""


def end_check(request: Request, token_bytes: TokenBytes) -> EndCheck:
    """The check of one sequence of the request; call it once per new token, in order."""
    params = request.params
    eos_ids = frozenset(() if params.ignore_eos else request.eos_ids)
    stop_ids = frozenset(params.stop_token_ids)
    matcher = StopMatcher(request.stop_bytes)
    state = matcher.start
    max_tokens, min_tokens = params.max_tokens, params.min_tokens
    assert max_tokens is not None, "the front door resolves max_tokens"

    def check(token_id: int, num_generated: int) -> Ending | None:
        nonlocal state
        if token_id in eos_ids:
            return Ending("stop")
        if token_id in stop_ids:
            return Ending("stop", token_id)
        if request.stop_bytes and num_generated > min_tokens:
            state, match = matcher.advance(state, token_bytes(token_id, params.skip_special_tokens))
            if match is not None:
                return Ending("stop", params.stop[match.stop_index])
        return Ending("length") if num_generated >= max_tokens else None

    return check
