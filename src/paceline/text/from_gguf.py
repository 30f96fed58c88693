"""A vocabulary and its encoder from a GGUF file's `tokenizer.ggml.*` metadata.

The one idea: GGUF stores the raw tables, not a pipeline, so the pipeline is rebuilt here for its two forms: byte-level BPE
(model `gpt2`: merges listed, words cut by a named rule) and SentencePiece BPE (model `llama`: no merges listed, every pair that
makes a token merges, best score first).

Control tokens are left out of the encoder: no text can produce them by accident. `tokenizer.py` puts them where they are asked for.

Source:  the GGUF specification, section "Tokenizer"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint, MetaValue
from paceline.log import log
from paceline.text import pretokenizers
from paceline.text.pretokenizers import PreTokenizerRule
from paceline.text.vocabulary import BYTE_PIECE, SPACE_MARK, Scheme, TokenKind, Vocabulary, byte_characters, is_spellable

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Encoder

_SCHEMES: dict[str, Scheme] = {"gpt2": "byte_level", "llama": "sentencepiece"}

_BYTES_OF_TEXT = (*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1), 0xF3)
"""Bytes that ordinary UTF-8 text is made of; published vocabularies lack some of the others (SmolLM2: 0x04, 0xF1 …)."""

MAX_PIECE_CHARS = 512
"""The longest token of a SentencePiece vocabulary: all ways of cutting each in two are looked through."""

END_OF_TURN = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "<turn|>", "<|end|>"),
    *("<EOT>", "<|eot|>", "<|return|>", "<|call|>", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "</s>"),
)
"""Control tokens by which models end a turn, whether or not their file says so."""


def vocabulary_from_gguf(checkpoint: Checkpoint) -> Vocabulary:
    """The vocabulary that a GGUF file describes. Errors: ModelError for a missing, malformed or unknown entry."""
    reader = _Reader(checkpoint)
    scheme = _scheme(reader)
    pieces = reader.strings("tokens")
    kinds = _kinds(reader, len(pieces))
    strange = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == TokenKind.BYTE and not BYTE_PIECE.fullmatch(piece)]
    if strange:
        raise reader.error("tokens", f"a byte spelled `{strange[0][:40]}`; expected `<0x00>` to `<0xFF>`")
    bos_id, eos_id = reader.token_id("bos_token_id", len(pieces)), reader.token_id("eos_token_id", len(pieces))
    ends = [reader.token_id(name, len(pieces)) for name in ("eot_token_id", "eom_token_id")]
    rule = _rule(reader) if scheme == "byte_level" else None
    return Vocabulary(
        pieces=pieces,
        kinds=kinds,
        scheme=scheme,
        bos_id=bos_id,
        eos_ids=end_ids(pieces, kinds, [eos_id, *ends]),
        adds_bos=reader.flag("add_bos_token", rule.adds_bos if rule else True) and bos_id is not None,
        space_prefix="each" if scheme == "sentencepiece" and reader.flag("add_space_prefix", True) else "never",
        chat_template=reader.chat_template(),
    )


def encoder_from_gguf(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Encoder:
    """The encoder of plain text. Errors: ModelError when the merges or scores do not fit the vocabulary."""
    from tokenizers import AddedToken

    reader = _Reader(checkpoint)
    build = _byte_level_encoder if vocabulary.scheme == "byte_level" else _sentencepiece_encoder
    try:
        encoder = build(reader, vocabulary)
    except ModelError:
        raise
    except Exception as error:  # the `tokenizers` library has no narrower type for tables that do not fit together
        raise ModelError(f"the tokenizer's tables do not fit together: {error}", path=checkpoint.path) from error
    defined = [vocabulary.pieces[i] for i, kind in enumerate(vocabulary.kinds) if kind == TokenKind.USER_DEFINED]
    # SentencePiece looks for user-defined tokens after spaces became `▁`, byte-level models in the text as it came.
    is_normalised = vocabulary.scheme == "sentencepiece"
    encoder.add_tokens([AddedToken(piece, normalized=is_normalised, special=False) for piece in defined if is_spellable(piece)])
    return encoder


def end_ids(pieces: Sequence[str], kinds: bytes, named: Iterable[int | None]) -> tuple[int, ...]:
    """The named end tokens, then every control token that is known to end a turn; each once."""
    known = frozenset(END_OF_TURN)
    found = [i for i, kind in enumerate(kinds) if kind == TokenKind.CONTROL and pieces[i] in known]
    return tuple(dict.fromkeys(i for i in (*named, *found) if i is not None))


def _byte_level_encoder(reader: _Reader, vocabulary: Vocabulary) -> Encoder:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    rule = _rule(reader)
    if reader.text("pre") in (None, "default"):
        log("warning", "text.no_pre_tokenizer_named", path=reader.checkpoint.path, used="gpt-2")
    ids = _mergeable(vocabulary)
    characters = byte_characters()
    missing = sum(characters[byte] not in ids for byte in _BYTES_OF_TEXT)
    if missing:
        log("warning", "text.vocabulary_lacks_bytes", path=reader.checkpoint.path, num_missing=missing)
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in reader.strings("merges"))]
    encoder = Tokenizer(models.BPE(ids, merges, ignore_merges=rule.takes_whole_words))
    if rule.is_nfc:
        encoder.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    encoder.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return encoder


def _sentencepiece_encoder(reader: _Reader, vocabulary: Vocabulary) -> Encoder:
    from tokenizers import Tokenizer, models, normalizers

    scores = np.asarray(reader.array("scores"), dtype=np.float32)
    if len(scores) != len(vocabulary):
        raise reader.error("scores", f"{len(scores)} scores for {len(vocabulary)} tokens")
    longest = max(map(len, vocabulary.pieces), default=0)
    if longest > MAX_PIECE_CHARS:
        raise reader.error("tokens", f"a token of {longest} characters; expected at most {MAX_PIECE_CHARS}")
    has_bytes = vocabulary.kinds.count(TokenKind.BYTE) == 256
    unknown = next((vocabulary.pieces[i] for i, kind in enumerate(vocabulary.kinds) if kind == TokenKind.UNKNOWN), None)
    ids = _mergeable(vocabulary)
    merges = score_merges(vocabulary, scores)
    if unknown is not None and not has_bytes:
        ids[unknown] = vocabulary.pieces.index(unknown)
    encoder = Tokenizer(models.BPE(ids, merges, byte_fallback=has_bytes, unk_token=None if has_bytes else unknown, fuse_unk=True))
    encoder.normalizer = normalizers.Replace(" ", SPACE_MARK)
    return encoder


def score_merges(vocabulary: Vocabulary, scores: npt.NDArray[np.float32]) -> list[tuple[str, str]]:
    """Every pair of tokens that joins to a token, the joined token's best score first.

    SentencePiece merges the pair whose token scores best, the leftmost of equals; a list of ranked pairs says the same, as scores
    differ between tokens. Splits of one token keep one order, the shorter left part first.
    Source:  Kudo and Richardson 2018 (SentencePiece); 262,144 tokens take 0.8 s
    """
    is_normal = np.frombuffer(vocabulary.kinds, np.uint8) == TokenKind.NORMAL
    order = np.argsort(-scores, kind="stable")
    pieces = [vocabulary.pieces[i] for i in order[is_normal[order]].tolist()]
    parts = frozenset(pieces)
    merges: list[tuple[str, str]] = []
    for piece in pieces:
        cuts = range(1, len(piece))
        merges += [(left, right) for cut in cuts if (left := piece[:cut]) in parts and (right := piece[cut:]) in parts]
    return merges


def _mergeable(vocabulary: Vocabulary) -> dict[str, int]:
    """The tokens that plain text can turn into, by their pieces."""
    plain = (TokenKind.NORMAL, TokenKind.BYTE, TokenKind.USER_DEFINED)
    return {piece: i for i, piece in enumerate(vocabulary.pieces) if vocabulary.kinds[i] in plain and is_spellable(piece)}


def _scheme(reader: _Reader) -> Scheme:
    model = reader.text("model")
    if model not in _SCHEMES:
        raise reader.error("model", f"tokenizer `{model}`; known are {', '.join(_SCHEMES)}")
    return _SCHEMES[model]


def _rule(reader: _Reader) -> PreTokenizerRule:
    name = reader.text("pre")
    if name is None or name == "default":
        return pretokenizers.FALLBACK
    if name not in pretokenizers.RULES:
        raise reader.error("pre", f"pre-tokenizer `{name}`, which is not known here; known are {', '.join(pretokenizers.RULES)}")
    return pretokenizers.RULES[name]


def _kinds(reader: _Reader, num_tokens: int) -> bytes:
    if not reader.has("token_type"):
        marks = {reader.token_id(name, num_tokens) for name in ("bos_token_id", "eos_token_id", "unknown_token_id")}
        return bytes(TokenKind.CONTROL if i in marks else TokenKind.NORMAL for i in range(num_tokens))
    kinds = np.asarray(reader.array("token_type"))
    if len(kinds) != num_tokens or not np.isin(kinds, list(TokenKind)).all():
        raise reader.error("token_type", f"{len(kinds)} kinds for {num_tokens} tokens; expected as many, from 1 to 6")
    return kinds.astype(np.uint8).tobytes()


class _Reader:
    """Typed access to the `tokenizer.ggml.` entries of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._metadata: Mapping[str, MetaValue] = checkpoint.metadata

    def has(self, name: str) -> bool:
        return f"tokenizer.ggml.{name}" in self._metadata

    def error(self, name: str, found: str) -> ModelError:
        return ModelError(f"`tokenizer.ggml.{name}` has {found}.", path=self.checkpoint.path)

    def text(self, name: str) -> str | None:
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        if value is not None and not isinstance(value, str):
            raise self.error(name, f"a {type(value).__name__}; expected a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, bool):
            raise self.error(name, f"a {type(value).__name__}; expected a truth value")
        return value

    def strings(self, name: str) -> list[str]:
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, "no list of strings")
        return cast(list[str], value)

    def array(self, name: str) -> npt.NDArray[np.generic]:
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(value, (np.ndarray, list)):
            raise self.error(name, "no list of numbers")
        return np.asarray(value)

    def token_id(self, name: str, num_tokens: int) -> int | None:
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < num_tokens:
            raise self.error(name, f"`{value}`; expected a token id below {num_tokens}")
        return value

    def chat_template(self) -> str | None:
        value = self._metadata.get("tokenizer.chat_template")
        return value if isinstance(value, str) and value else None
