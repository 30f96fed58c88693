"""A folder's tokenizer encodes as the library it is written for, whatever its form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue
from paceline.text.tokenizer import Tokenizer, load_tokenizer, load_vocabulary
from paceline.text.vocabulary import byte_characters
from tests.text.corpus import TEXTS
from tests.text.vocabularies import MemoryCheckpoint

MARKS = ["<unk>", "<s>", "</s>"]


def byte_level_pipeline() -> Any:
    """A byte-level pipeline whose template puts `<s>` first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    merges = [("a", "b"), ("Ġ", "a")]
    vocab = {piece: i for i, piece in enumerate([*byte_characters(), "ab", "Ġa"])}
    encoder = Tokenizer(models.BPE(vocab, merges))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(mark, normalized=False, rstrip=mark == "</s>") for mark in MARKS[1:]])
    encoder.add_tokens([AddedToken("<tool>", normalized=False)])
    encoder.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 258)])
    return encoder


def sentencepiece_pipeline(prefix: str) -> Any:
    """A SentencePiece pipeline in one of the ways in which it adds a space."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces = [*MARKS, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁ab", "ab"]
    encoder = Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("a", "b"), ("▁", "a"), ("▁", "ab"), ("▁a", "b")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    if prefix == "prepend":
        encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif prefix == "replace":
        encoder.normalizer = normalizers.Replace(" ", "▁")
    else:
        encoder.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    encoder.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    encoder.add_special_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    return encoder


def folder(path: Path, encoder: Any, config: dict[str, Any], **others: Any) -> MemoryCheckpoint:
    """The files of a model folder; an argument `generation_config={…}` becomes `generation_config.json`."""
    encoder.save(str(path / "tokenizer.json"))
    for name, content in {"tokenizer_config": config, **others}.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    metadata: dict[str, MetaValue] = {"eos_token_id": 2}
    return MemoryCheckpoint(metadata, {file.name: file for file in path.iterdir()})


def load(path: Path, encoder: Any, config: dict[str, Any] | None = None, **others: Any) -> Tokenizer:
    """The tokenizer of such a folder."""
    return load_tokenizer(folder(path, encoder, config or {}, **others))


@pytest.mark.parametrize("prefix", ["byte_level", "never", "first", "always", "prepend", "replace"])
def test_a_folder_encodes_as_the_library_does(prefix: str, tmp_path: Path) -> None:
    make: Callable[[], Any] = byte_level_pipeline if prefix == "byte_level" else lambda: sentencepiece_pipeline(prefix)
    tokenizer = load(tmp_path, make())
    for text in (*TEXTS, "ab", "</s>ab a", "a</s>  ab<s>a", "<s><s> ab"):
        expected = make().encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special=False, parse_special=True) == expected


@pytest.mark.parametrize("prefix", ["never", "first", "always", "prepend", "replace"])
def test_a_folder_decodes_what_it_encoded(prefix: str, tmp_path: Path) -> None:
    tokenizer = load(tmp_path, sentencepiece_pipeline(prefix))
    for text in TEXTS:
        # `Metaspace` encodes " a" as it does "a", so the space is lost.
        expected = text.removeprefix(" ") if prefix in ("first", "always") else text
        assert tokenizer.decode(tokenizer.encode(text, add_special=False, parse_special=False)) == expected


def test_control_text_is_plain_unless_it_is_meant(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_level_pipeline())
    assert 258 not in tokenizer.encode("a<s>b", add_special=False, parse_special=False)
    assert tokenizer.encode("a<tool>b", add_special=False, parse_special=False).count(260) == 1
    assert tokenizer.vocabulary.control_ids == {"<s>": 258, "</s>": 259}


@pytest.mark.parametrize(
    ("config", "adds_bos"),
    [
        ({"bos_token": "<s>"}, True),
        ({"bos_token": {"content": "<s>", "lstrip": False}}, True),
        ({"bos_token": "<s>", "add_bos_token": False}, False),
        ({"bos_token": None}, False),
        ({"bos_token": "<tool>"}, False),
    ],
)
def test_bos_is_what_the_config_says_else_what_the_pipeline_does(config: dict[str, Any], adds_bos: bool, tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_level_pipeline(), config)
    assert tokenizer.encode("a", add_special=True, parse_special=False) == ([258] if adds_bos else []) + [byte_characters().index("a")]


def test_end_tokens_come_from_every_file(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_level_pipeline(), {"eos_token": "<tool>"}, generation_config={"eos_token_id": [258, 9999]})
    assert tokenizer.eos_ids == (260, 258, 2, 259)


def test_the_chat_templates_own_file_goes_first(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert load(tmp_path, byte_level_pipeline(), {"chat_template": "plain"}).chat_template == "plain"
    assert load(tmp_path, byte_level_pipeline(), {"chat_template": several}).chat_template == "d"
    assert load(tmp_path, byte_level_pipeline(), {}).chat_template is None
    (tmp_path / "chat_template.jinja").write_text("own")
    assert load(tmp_path, byte_level_pipeline(), {"chat_template": "plain"}).chat_template == "own"


def test_the_vocabulary_alone_is_the_same(tmp_path: Path) -> None:
    checkpoint = folder(tmp_path, sentencepiece_pipeline("first"), {})
    alone, whole = load_vocabulary(checkpoint), load_tokenizer(checkpoint).vocabulary
    assert [alone.token_bytes(i) for i in range(len(alone))] == [whole.token_bytes(i) for i in range(len(whole))]
    assert alone.token_bytes(3 + 10) == b"\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not readable as UTF-8"),
        (b"[]", "expected an object"),
        (b"{}", "no `model` and `added_tokens`"),
        (b'{"model": {}}', "no `model.vocab`"),
        (b'{"model": {"vocab": [[1, 0.5]]}}', "no `model.vocab`"),
        (b'{"model": {"vocab": {"a": 99999999}}}', "no `model.vocab` of token ids"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": -1, "content": "x"}]}', "no `model` and `added_tokens`"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "x"}]}', "no `model` and `added_tokens`"),
        (b'{"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}', "a decoder of an unknown form"),
        (b'{"model": {"vocab": {"a": 0}}, "decoder": {"type": "ByteLevel"}}', "not a tokenizer that can be loaded"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_broken_file_is_refused_by_its_name(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as failure:
        load_tokenizer(MemoryCheckpoint({}, {path.name: path}))
    assert message in str(failure.value)
    assert str(path) in str(failure.value)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no `tokenizer\.json`"):
        load_tokenizer(MemoryCheckpoint({}, {"config.json": tmp_path / "config.json"}))
