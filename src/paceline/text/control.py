"""Cutting text at control tokens.

The one idea: the search is left to the `tokenizers` library's own automaton (all marks at once, leftmost longest, linear
time), by a tokenizer that knows no words but the control tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Encoder

Segment = str | int
"""A piece of a prompt: plain text, or the id of a control token."""


class ControlSplitter:
    """Finds control tokens in text."""

    __slots__ = ("_encoder", "_first_characters", "_ids")

    def __init__(self, control_ids: Mapping[str, int], marks: Sequence[AddedToken] | None = None) -> None:
        """`marks` are the same tokens with their stripping rules, where the file has such rules."""
        from tokenizers import AddedToken

        added = [AddedToken(text, normalized=False, special=True) for text in control_ids] if marks is None else list(marks)
        self._encoder = _mark_encoder(added)
        # The mark encoder numbers its tokens 1, 2, …; 0 is everything else.
        self._ids = [-1] * (1 + len(control_ids))
        for text, token_id in control_ids.items():
            number = self._encoder.token_to_id(text)
            assert number is not None
            self._ids[number] = token_id
        self._first_characters = "".join({text[0] for text in control_ids})

    def split(self, text: str) -> list[Segment]:
        """The text in pieces, control tokens as ids, in order; no piece is empty."""
        if not text:
            return []
        if not any(character in text for character in self._first_characters):
            return [text]
        encoding = self._encoder.encode_batch([text], add_special_tokens=False)[0]
        return [
            self._ids[number] if number else text[start:end] for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]


def _mark_encoder(marks: list[AddedToken]) -> Encoder:
    from tokenizers import Tokenizer, models

    encoder = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
    encoder.add_special_tokens(marks)
    return encoder
