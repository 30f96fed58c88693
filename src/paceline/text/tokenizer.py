"""Text to token ids and back.

The one idea: Hugging Face's `tokenizers` does the merging, and control tokens never reach it. Whoever encodes says whether marks
in the text are meant (`parse_special`: a template's markup) or are just characters (what a user typed).

It renders no templates (`chat.py`), streams nothing (`stream.py`), and never adds an end token: a prompt is to be continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from paceline.errors import ContextLengthError
from paceline.formats.checkpoint import Checkpoint
from paceline.text.control import ControlSplitter, Segment, valid_unicode
from paceline.text.detokenizer import decode
from paceline.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Encoder

EXACT_CHARS = 1 << 20
"""Texts up to this length are always encoded whole, so that a refusal can say their true number of tokens."""
SLICE_CHARS = 1 << 16
BORDER_TOKENS = 16


class Tokenizer:
    """Encodes and decodes for one model. Safe to use from several threads; encoding lets other threads run."""

    __slots__ = ("_encoder", "splitter", "vocabulary")

    def __init__(self, vocabulary: Vocabulary, encoder: Encoder, splitter: ControlSplitter) -> None:
        self.vocabulary = vocabulary
        self._encoder = encoder
        self.splitter = splitter

    @property
    def vocab_size(self) -> int:
        """How many tokens the vocabulary names; the model's own size may be larger by padding."""
        return len(self.vocabulary)

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self.vocabulary.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every token that ends a turn."""
        return self.vocabulary.eos_ids

    @property
    def chat_template(self) -> str | None:
        """The model's own chat template, or None."""
        return self.vocabulary.chat_template

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark and not text."""
        return self.vocabulary.is_special(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""
        return self.vocabulary.token_bytes(token_id)

    def token_text(self, token_id: int | None) -> str:
        """A token alone as text; empty for None."""
        return self.vocabulary.token_text(token_id)

    def encode(self, text: str, *, add_special: bool, parse_special: bool, max_model_len: int | None = None) -> list[int]:
        """The ids of a text.

        `add_special` begins with BOS where the model wants one and the text has none of its own. `parse_special` takes control
        tokens that are spelled out in the text for what they are; without it they are characters like any others.
        Errors:  RequestError for text that is no valid Unicode (a lone surrogate) · ContextLengthError for more than `max_model_len` ids
        """
        self.check_length(text, max_model_len, parse_special=parse_special)
        segments: Sequence[Segment] = self.splitter.split(text) if parse_special else (text,)
        ids = self.encode_segments(segments, add_special=add_special)
        if max_model_len is not None and len(ids) > max_model_len:
            raise ContextLengthError(num_tokens=len(ids), max_model_len=max_model_len)
        return ids

    def check_length(self, text: str, max_model_len: int | None, *, parse_special: bool) -> None:
        """Refuse a very long text that cannot fit, at the cost of about as many tokens as would. Errors: ContextLengthError, RequestError.

        Encoding takes a few hundred bytes of memory a token (27 MB of digits: 9.7 GB), so a long text is counted in slices first.
        A word that a border cuts counts as a token or two more, which is why some of each slice is not counted.
        """
        if max_model_len is None or len(text) <= EXACT_CHARS:
            return
        num_tokens = 0
        for start in range(0, len(text), SLICE_CHARS):
            piece = text[start : start + SLICE_CHARS]
            segments: Sequence[Segment] = self.splitter.split(piece) if parse_special else (piece,)
            num_tokens += max(0, len(self.encode_segments(segments, add_special=False)) - BORDER_TOKENS)
            if num_tokens > max_model_len:
                raise ContextLengthError(num_tokens=num_tokens, max_model_len=max_model_len, is_exact=False)

    def encode_segments(self, segments: Iterable[Segment], *, add_special: bool) -> list[int]:
        """The ids of pieces of plain text and control tokens in turn; exactly one BOS where the model wants one."""
        ids: list[int] = []
        prefix = "" if self.vocabulary.space_prefix == "never" else " "
        for segment in segments:
            if isinstance(segment, int):
                ids.append(segment)
                prefix = " " if self.vocabulary.space_prefix == "each" else ""
            elif segment:
                is_spared = self.vocabulary.spares_spaces and segment[0] == " "
                ids += self._encode_plain(("" if is_spared else prefix) + valid_unicode(segment))
                prefix = ""
        bos_id = self.vocabulary.bos_id
        if add_special and self.vocabulary.adds_bos and bos_id is not None and ids[:1] != [bos_id]:
            ids.insert(0, bos_id)
        return ids

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence of ids; a growing one is a `TextStream`'s or `Detokenizer`'s to decode."""
        return decode(self.vocabulary, token_ids, skip_special_tokens=skip_special_tokens)

    def _encode_plain(self, text: str) -> list[int]:
        # The batch call without offsets: it releases the GIL, `encode` does not, and it is twice as fast (2.5 MB/s on one core).
        return self._encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids


def load_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The model's vocabulary alone, enough to decode and to match stop strings. Errors: ModelError."""
    if checkpoint.kind == "gguf":
        from paceline.text.from_gguf import vocabulary_from_gguf

        return vocabulary_from_gguf(checkpoint)
    from paceline.text.from_folder import read_folder

    return read_folder(checkpoint).vocabulary


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The model's tokenizer. Errors: ModelError for one that is missing, malformed or of an unknown kind.

    Built anew each time: SmolLM2's takes 0.1 s from GGUF, Gemma 3's 1.3 s; reading a saved tokenizer.json takes 0.1 s and 1.0 s,
    so a cache on disk would not pay.
    """
    if checkpoint.kind == "gguf":
        from paceline.text.from_gguf import encoder_from_gguf, vocabulary_from_gguf

        vocabulary = vocabulary_from_gguf(checkpoint)
        encoder = encoder_from_gguf(checkpoint, vocabulary)
        return Tokenizer(vocabulary, encoder, ControlSplitter(vocabulary.control_ids))
    from paceline.text.from_folder import encoder_from_folder, read_folder

    folder = read_folder(checkpoint)
    encoder, marks = encoder_from_folder(folder)
    return Tokenizer(folder.vocabulary, encoder, ControlSplitter(folder.vocabulary.control_ids, marks))
