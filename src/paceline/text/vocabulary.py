"""The table of a model's tokens: what bytes each stands for, which are marks, and which end a turn.

The one idea: everything on the way back, from ids to text, needs only this table and no tokenizer library. The engine loads
just this to match stop strings; the front wraps it in a `Tokenizer` for the way in.

A token's bytes never depend on its neighbours. Text is the UTF-8 of the joined bytes, with U+FFFD for what is not UTF-8.

It does not encode, and reads no files: `from_gguf.py` and `from_folder.py` fill it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

Scheme = Literal["byte_level", "sentencepiece"]
SpacePrefix = Literal["never", "first", "each"]
"""Where encoding puts a space that the text does not have: nowhere, at the text's start, or there and after every control token."""

SPACE_MARK = "▁"
"""How SentencePiece spells a space inside a piece."""

BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")
"""How SentencePiece spells a byte that no piece covers."""


class TokenKind(IntEnum):
    """What a token is; the numbers are GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def byte_characters() -> list[str]:
    """The printable character by which byte-level vocabularies spell each byte 0 to 255.

    Source:  Radford et al. 2019 (GPT-2): printable Latin-1 bytes stand for themselves, the rest are counted up from U+0100
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in kept}
    moved = [byte for byte in range(256) if byte not in table]
    table.update((byte, chr(0x100 + index)) for index, byte in enumerate(moved))
    return [table[byte] for byte in range(256)]


_BYTE_OF_CHARACTER = {ord(character): byte for byte, character in enumerate(byte_characters())}


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """A model's tokens. Its size may be less than the model's padded one: ids beyond it stand for no bytes.

    Layout:  pieces[id] is the token as its file spells it, kinds[id] its `TokenKind`
    """

    pieces: Sequence[str]
    kinds: bytes
    scheme: Scheme
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Every token that ends a turn, the file's own end token first."""
    adds_bos: bool
    """Whether a prompt begins with `bos_id`."""
    space_prefix: SpacePrefix = "never"
    spares_spaces: bool = False
    """Whether no space is added before text that begins with one (the rule of `Metaspace`, unlike SentencePiece's)."""
    chat_template: str | None = None
    control_ids: Mapping[str, int] = field(init=False)
    """The control tokens that a text can spell, by their text."""

    def __post_init__(self) -> None:
        assert len(self.pieces) == len(self.kinds)
        control = {self.pieces[i]: i for i, kind in enumerate(self.kinds) if kind == TokenKind.CONTROL and is_spellable(self.pieces[i])}
        object.__setattr__(self, "control_ids", control)

    def __len__(self) -> int:
        return len(self.pieces)

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark (control or unknown) and not text."""
        return token_id < len(self.kinds) and self.kinds[token_id] in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; a mark gives its own text, an id of the model's padding nothing."""
        if token_id >= len(self.pieces):
            return b""
        piece, kind = self.pieces[token_id], self.kinds[token_id]
        if kind == TokenKind.BYTE:
            return bytes((int(piece[3:5], 16),))
        if kind == TokenKind.NORMAL:
            return _byte_level(piece) if self.scheme == "byte_level" else utf8(piece.replace(SPACE_MARK, " "))
        return utf8(piece)

    def token_text(self, token_id: int | None) -> str:
        """A token alone as text, with U+FFFD for what is no UTF-8; empty for None."""
        return "" if token_id is None else self.token_bytes(token_id).decode("utf-8", "replace")

    def visible_bytes(self, token_id: int, *, skip_special_tokens: bool) -> bytes:
        """The bytes of a generated token that a client gets to see, and that stop strings are matched against."""
        return b"" if skip_special_tokens and self.is_special(token_id) else self.token_bytes(token_id)


def is_spellable(piece: str) -> bool:
    """Whether some text holds the piece: it is not empty and was valid UTF-8 in its file."""
    try:
        return bool(piece.encode())
    except UnicodeEncodeError:
        return False


def utf8(piece: str) -> bytes:
    """A piece's bytes as they were in its file, where they need not have been UTF-8."""
    try:
        return piece.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate out of JSON, which stands for no bytes
        return piece.encode("utf-8", "replace")


def _byte_level(piece: str) -> bytes:
    """A byte-level piece's bytes; a character outside the alphabet (a foreign addition) stands for its UTF-8."""
    try:
        return piece.translate(_BYTE_OF_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(bytes((b,)) if (b := _BYTE_OF_CHARACTER.get(ord(c))) is not None else utf8(c) for c in piece)
