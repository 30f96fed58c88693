"""What a client may be sent of a growing answer: detokenised, cut at stop strings, never taken back.

The one idea: match stop strings on bytes, before decoding. Bytes that may still become a stop string wait; the rest is decoded.
The engine runs the same `StopMatcher` over the same bytes, so both cut the answer at the same byte.

A stream and a non-streamed answer use the same class, so their texts cannot differ.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from paceline.text.stop import StopMatch, StopMatcher
from paceline.text.vocabulary import Vocabulary

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """The visible text of one generated sequence.

        text = stream.push(token_ids)       # as often as tokens come; "" while text is held back
        rest = stream.finish()              # once, whatever ended the sequence

    After a stop string nothing more comes out. The first `min_tokens` tokens neither contain nor begin a stop.
    """

    __slots__ = (
        "_decoder",
        "_includes_stop",
        "_matcher",
        "_num_exempt",
        "_pending",
        "_skip",
        "_state",
        "_stop",
        "_vocabulary",
        "stop_string",
    )

    def __init__(
        self,
        vocabulary: Vocabulary,
        stop: tuple[str, ...] = (),
        *,
        skip_special_tokens: bool = True,
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._vocabulary = vocabulary
        self._stop = stop
        self._skip = skip_special_tokens
        self._includes_stop = include_stop_str_in_output
        self._num_exempt = min_tokens
        self._matcher = StopMatcher(tuple(string.encode() for string in stop))
        self._state = self._matcher.start
        self._pending = b""
        self._decoder = _new_decoder("replace")
        self.stop_string: str | None = None
        """The stop string that ended the text, or None."""

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens make safe to send."""
        return self._decoder.decode(b"".join([self._advance(token_id) for token_id in token_ids]), final=False)

    def finish(self) -> str:
        """The text that was held back and turned out to be no stop string; to be called once, at the end."""
        rest, self._pending = self._pending, b""
        return self._decoder.decode(rest, final=True)

    def _advance(self, token_id: int) -> bytes:
        """The bytes that this token makes safe to send."""
        if self.stop_string is not None:
            return b""
        data = self._vocabulary.visible_bytes(token_id, skip_special_tokens=self._skip)
        if not self._stop:
            return data
        if self._num_exempt > 0:
            self._num_exempt -= 1
            return data
        self._state, match = self._matcher.advance(self._state, data)
        if match is not None:
            return self._cut(data, match)
        buffered = self._pending + data
        num_safe = len(buffered) - self._matcher.held(self._state)
        self._pending = buffered[num_safe:]
        return buffered[:num_safe]

    def _cut(self, data: bytes, match: StopMatch) -> bytes:
        """The last bytes to send: those before the stop string, or up to its end when it is to be included."""
        self.stop_string = self._stop[match.stop_index]
        end = match.end if self._includes_stop else match.start
        buffered = self._pending + data
        last, self._pending = buffered[: len(self._pending) + end], b""
        return last
