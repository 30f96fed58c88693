"""From token ids back to text, a few tokens at a time.

The one idea: every token stands for fixed bytes, so text is the UTF-8 decoding of joined bytes. What a stream holds back is only
the start of a character whose other bytes have not come yet; bytes that are no UTF-8 become U+FFFD, as in one decoding of the whole.

It knows nothing of stop strings: see `stream.py`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from paceline.text.vocabulary import Vocabulary

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns a growing sequence into text; any way of cutting the sequence gives the same text.

    A continuation (what a model generates) keeps its first space. A whole sequence (`is_continuation=False`) loses the space that
    encoding adds by `Vocabulary.space_prefix`, at the same places, so that decoding undoes encoding.
    """

    __slots__ = ("_decoder", "_skip", "_strips_after_marks", "_strips_space", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, *, skip_special_tokens: bool = True, is_continuation: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._strips_space = not is_continuation and vocabulary.space_prefix != "never"
        self._strips_after_marks = not is_continuation and vocabulary.space_prefix == "each"
        self._decoder = _new_decoder("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        return self._decoder.decode(b"".join([self._bytes(token_id) for token_id in token_ids]))

    def finish(self) -> str:
        """What was held back; to be called once, at the end."""
        return self._decoder.decode(b"", final=True)

    def _bytes(self, token_id: int) -> bytes:
        data = self._vocabulary.visible_bytes(token_id, skip_special_tokens=self._skip)
        if self._vocabulary.is_special(token_id):
            self._strips_space = self._strips_space or self._strips_after_marks
            return data
        if not self._strips_space:
            return data
        self._strips_space = False
        return data.removeprefix(b" ")


def decode(vocabulary: Vocabulary, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
    """The text of a whole sequence: what encoding made these ids from, its added space taken away again."""
    detokenizer = Detokenizer(vocabulary, skip_special_tokens=skip_special_tokens, is_continuation=False)
    return detokenizer.push(token_ids) + detokenizer.finish()
