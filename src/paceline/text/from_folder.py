"""A vocabulary and its encoder from the tokenizer files of a model folder.

The one idea: `tokenizer.json` is a whole pipeline and is run as it is, except for two things that `Tokenizer` does itself so that
they happen the same way for every file: adding a leading space, and finding control tokens.

Source:  the tokenizer.json serialisation of Hugging Face `tokenizers`; `tokenizer_config.json` of `transformers`
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import ModelError
from paceline.formats.checkpoint import Checkpoint
from paceline.text.from_gguf import end_ids
from paceline.text.vocabulary import BYTE_PIECE, Scheme, SpacePrefix, TokenKind, Vocabulary

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Encoder

MAX_TOKEN_ID = 1 << 22

_METASPACE_PREFIXES: dict[str, SpacePrefix] = {"always": "each", "first": "first"}


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerFolder:
    """What was read from a folder: the vocabulary, and the pipeline as JSON text."""

    path: Path
    vocabulary: Vocabulary
    pipeline: str


def read_folder(checkpoint: Checkpoint) -> TokenizerFolder:
    """Read `tokenizer.json` and its companions. Errors: ModelError when it is missing or not of a known form."""
    path = checkpoint.files.get("tokenizer.json")
    if path is None:
        raise ModelError("no `tokenizer.json`; expected one beside the weights.", path=checkpoint.path)
    text = _read(path)
    pipeline = _object(text, path)
    config = _companion(checkpoint, "tokenizer_config.json")
    space_prefix, spares_spaces = _take_space_prefix(pipeline)
    pieces, kinds = _tokens(pipeline, path)
    ids = {piece: token_id for token_id, piece in enumerate(pieces)}
    bos_id = ids.get(_token_name(config.get("bos_token")))
    vocabulary = Vocabulary(
        pieces=pieces,
        kinds=kinds,
        scheme=_scheme(pipeline, path),
        bos_id=bos_id,
        eos_ids=end_ids(pieces, kinds, _named_ends(checkpoint, ids.get(_token_name(config.get("eos_token"))), len(pieces))),
        adds_bos=bos_id is not None and _adds_bos(pipeline, config, pieces[bos_id]),
        space_prefix=space_prefix,
        spares_spaces=spares_spaces,
        chat_template=_chat_template(checkpoint, config),
    )
    return TokenizerFolder(path, vocabulary, text if space_prefix == "never" else json.dumps(pipeline, ensure_ascii=False))


def encoder_from_folder(folder: TokenizerFolder) -> tuple[Encoder, list[AddedToken]]:
    """The encoder of plain text, and the control tokens with their stripping rules. Errors: ModelError."""
    from tokenizers import Tokenizer

    try:
        encoder = Tokenizer.from_str(folder.pipeline)
    except Exception as error:  # the `tokenizers` library has no narrower type for a file it cannot read
        raise ModelError(f"not a tokenizer that can be loaded: {error}", path=folder.path) from error
    encoder.encode_special_tokens = True
    encoder.no_truncation()
    encoder.no_padding()
    control = folder.vocabulary.control_ids
    marks = [token for token in encoder.get_added_tokens_decoder().values() if token.special and token.content in control]
    return encoder, marks


def _tokens(pipeline: Mapping[str, Any], path: Path) -> tuple[list[str], bytes]:
    """Every piece by id, and its kind; ids that nothing names are empty and unused."""
    model, added = pipeline.get("model"), pipeline.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(added, list) or not all(_is_added_token(token) for token in added):
        raise ModelError(f"no `model` and `added_tokens` with ids from 0 to {MAX_TOKEN_ID - 1}.", path=path)
    table = _token_ids(model.get("vocab"), path)
    size = 1 + max([*table.values(), *(token["id"] for token in added)], default=-1)
    pieces, kinds = [""] * size, bytearray([TokenKind.UNUSED]) * size
    for piece, token_id in table.items():
        is_byte = model.get("byte_fallback") and BYTE_PIECE.fullmatch(piece)
        pieces[token_id], kinds[token_id] = piece, TokenKind.BYTE if is_byte else TokenKind.NORMAL
    for token in added:
        pieces[token["id"]] = token["content"]
        kinds[token["id"]] = TokenKind.CONTROL if token.get("special") else TokenKind.USER_DEFINED
    return pieces, bytes(kinds)


def _token_ids(table: Any, path: Path) -> dict[str, int]:
    """The ids by piece: BPE lists them so, Unigram lists pieces with scores in the order of their ids."""
    if isinstance(table, list):
        table = {entry[0]: token_id for token_id, entry in enumerate(table) if isinstance(entry, list) and entry}
    if not isinstance(table, dict) or not all(isinstance(piece, str) and _is_token_id(i) for piece, i in table.items()):
        raise ModelError(f"no `model.vocab` of token ids from 0 to {MAX_TOKEN_ID - 1}.", path=path)
    return table


def _is_added_token(token: Any) -> bool:
    return isinstance(token, dict) and _is_token_id(token.get("id")) and isinstance(token.get("content"), str)


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < MAX_TOKEN_ID


def _scheme(pipeline: Mapping[str, Any], path: Path) -> Scheme:
    """How pieces spell bytes, as the decoder says."""
    decoders = list(_steps(pipeline.get("decoder")))
    if any(step.get("type") == "ByteLevel" for step in decoders):
        return "byte_level"
    if any(step.get("type") in ("ByteFallback", "Metaspace", "Replace") for step in decoders):
        return "sentencepiece"
    raise ModelError("a decoder of an unknown form; expected ByteLevel or SentencePiece's.", path=path)


def _take_space_prefix(pipeline: dict[str, Any]) -> tuple[SpacePrefix, bool]:
    """Where the pipeline adds a leading space, and whether not before another; it is changed so that it no longer does."""
    for step in _steps(pipeline.get("pre_tokenizer")):
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
            step["prepend_scheme"] = "never"
            step.pop("add_prefix_space", None)
            return _METASPACE_PREFIXES.get(scheme, "never"), True
    normalizer = pipeline.get("normalizer")
    for step in _steps(normalizer):
        if step.get("type") == "Prepend":
            kept = [other for other in _steps(normalizer) if other is not step]
            pipeline["normalizer"] = {"type": "Sequence", "normalizers": kept}
            return "each", False
    return "never", False


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a pipeline part, whether it is one or a sequence."""
    if not isinstance(part, dict):
        return
    for name in ("normalizers", "pretokenizers", "decoders", "processors"):
        if isinstance(part.get(name), list):
            for step in part[name]:
                yield from _steps(step)
            return
    yield part


def _adds_bos(pipeline: Mapping[str, Any], config: Mapping[str, Any], bos: str) -> bool:
    """Whether prompts begin with BOS: what the config says, else whether the pipeline's template puts it first."""
    if isinstance(config.get("add_bos_token"), bool):
        return bool(config["add_bos_token"])
    for step in _steps(pipeline.get("post_processor")):
        single = step.get("single") if step.get("type") == "TemplateProcessing" else None
        if isinstance(single, list) and single and isinstance(single[0], dict):
            return bool((single[0].get("SpecialToken") or {}).get("id") == bos)
    return False


def _named_ends(checkpoint: Checkpoint, eos_id: int | None, num_tokens: int) -> list[int | None]:
    """End tokens by the tokenizer's config, the generation config and the model's config, in this order."""
    ends: list[int | None] = [eos_id]
    for source in (_companion(checkpoint, "generation_config.json"), checkpoint.metadata):
        value = source.get("eos_token_id")
        listed = value if isinstance(value, list) else [value]
        ends += [item for item in listed if isinstance(item, int) and 0 <= item < num_tokens]
    return ends


def _chat_template(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str | None:
    """The chat template: its own file, else the config's, of several the one named `default`."""
    path = checkpoint.files.get("chat_template.jinja")
    if path is not None:
        return _read(path)
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) and value else None


def _token_name(value: Any) -> str:
    """A special token's text, given plainly or as an added token's fields."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _companion(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    path = checkpoint.files.get(name)
    return {} if path is None else _object(_read(path), path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"not readable as UTF-8 text: {error}", path=path) from error


def _object(text: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"not valid JSON: {error}", path=path) from error
    if not isinstance(value, dict):
        raise ModelError(f"a JSON {type(value).__name__}; expected an object.", path=path)
    return value
