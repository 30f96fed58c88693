"""Finding control tokens in text, and keeping a user's characters from becoming one.

The one idea: the search is left to the `tokenizers` library's own automaton (all marks at once, leftmost longest, linear
time), by a tokenizer that knows no words but the control tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from paceline.errors import RequestError

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Encoder

Segment = str | int
"""A piece of a prompt: plain text, or the id of a control token."""

MAX_PARTIAL = 64
"""The longest part of a control token that is looked for at a text's ends."""


class ControlSplitter:
    """Knows a vocabulary's control tokens by their text."""

    __slots__ = ("_encoder", "_first_characters", "_heads", "_ids", "_tails", "_texts")

    def __init__(self, control_ids: Mapping[str, int], marks: Sequence[AddedToken] | None = None) -> None:
        """`marks` are the same tokens with their stripping rules, where the file has such rules."""
        from tokenizers import AddedToken

        self._encoder = _mark_encoder([AddedToken(text, normalized=False) for text in control_ids] if marks is None else marks)
        # The mark encoder numbers its tokens 1, 2, …; 0 is everything else.
        self._ids, self._texts = [-1] * (1 + len(control_ids)), [""] * (1 + len(control_ids))
        for text, token_id in control_ids.items():
            number = self._encoder.token_to_id(text)
            assert number is not None
            self._ids[number], self._texts[number] = token_id, text
        self._first_characters = "".join({text[0] for text in control_ids})
        self._heads: frozenset[str] = frozenset()
        self._tails: frozenset[str] = frozenset()

    def split(self, text: str) -> list[Segment]:
        """The text in pieces, control tokens as ids, in order; no piece is empty. Errors: RequestError for a lone surrogate."""
        return [self._ids[number] if number else text[start:end] for number, start, end in self._spans(valid_unicode(text))]

    def neutralised(self, text: str, stand_in: Callable[[str], str]) -> str:
        """The text with its control tokens broken: a character of each, and of parts of one at the text's ends, has its stand-in.

        The stand-ins must occur in no control token. Each round breaks every token found, so a round finds only what lay beneath.
        Errors:  RequestError naming `messages` for a lone surrogate
        """
        valid_unicode(text, "messages")
        while found := self._weak_points(text):
            pieces, done = [], 0
            for index in sorted(found):
                pieces += [text[done:index], stand_in(text[index])]
                done = index + 1
            text = "".join([*pieces, text[done:]])
        return text

    def _weak_points(self, text: str) -> set[int]:
        """Where control tokens begin, and the parts of one by which the text ends or begins."""
        if not self._heads:
            self._heads, self._tails = _partials(self._texts)
        lengths = range(1, min(len(text), MAX_PARTIAL) + 1)
        points = {self._begin(text, *span) for span in self._spans(text) if span[0]}
        points |= {len(text) - length for length in lengths if text[-length:] in self._heads}
        return points | {0 for length in lengths if text[:length] in self._tails}

    def _begin(self, text: str, number: int, start: int, end: int) -> int:
        """Where the token itself begins in a span, which may hold the whitespace that the token strips."""
        return text.index(self._texts[number], start, end)

    def _spans(self, text: str) -> list[tuple[int, int, int]]:
        """Control tokens (their number, start, end) and the stretches between them (number 0)."""
        if not text:
            return []
        if not any(character in text for character in self._first_characters):
            return [(0, 0, len(text))]
        encoding = self._encoder.encode_batch([text], add_special_tokens=False)[0]
        return [(number, start, end) for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)]


def valid_unicode(text: str, field: str | None = None) -> str:
    """The text, which must be encodable. Errors: RequestError naming `field` for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"The text has a lone surrogate at character {error.start}; expected valid Unicode."
        raise RequestError(message, param=field, code="invalid_value") from error
    return text


def _partials(texts: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The proper beginnings and the proper ends of control tokens."""
    lengths = [(text, length) for text in texts for length in range(1, min(len(text), MAX_PARTIAL + 1))]
    return frozenset(text[:length] for text, length in lengths), frozenset(text[-length:] for text, length in lengths)


def _mark_encoder(marks: Sequence[AddedToken]) -> Encoder:
    from tokenizers import Tokenizer, models

    encoder = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
    encoder.add_special_tokens(list(marks))
    return encoder
