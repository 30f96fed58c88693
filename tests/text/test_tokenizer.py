"""The tokenizer of the default model against an independent one, and the rules that every tokenizer keeps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.errors import ContextLengthError, ModelError, RequestError
from paceline.formats.catalog import models_dir
from paceline.formats.checkpoint import MetaValue
from paceline.formats.open import open_checkpoint
from paceline.text.tokenizer import EXACT_CHARS, SLICE_CHARS, Tokenizer, load_tokenizer, load_vocabulary
from paceline.text.vocabulary import SPACE_MARK, byte_characters
from tests.text.corpus import CONTROL_TEXT, TEXTS
from tests.text.oracles import SentencePieceOracle, transformers_encoder
from tests.text.vocabularies import MemoryCheckpoint, byte_level_metadata, sentencepiece_metadata

QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
GEMMA = "gemma-3-270m-q4_k_m.gguf"


@pytest.fixture(scope="module")
def published(smollm2_path: Path) -> Any:
    """SmolLM2's tables as `transformers` reads them, with the word rule that the model's own tokenizer.json states."""
    from tokenizers import pre_tokenizers

    encoder = transformers_encoder(smollm2_path)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    encoder.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return encoder


def plain(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of text in which nothing is a mark."""
    return tokenizer.encode(text, add_special=False, parse_special=False)


def tiny(metadata: dict[str, MetaValue]) -> Tokenizer:
    """A tokenizer of metadata alone."""
    return load_tokenizer(MemoryCheckpoint(metadata))


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_encodes_as_the_published_tokenizer(text: str, smollm2: Tokenizer, published: Any) -> None:
    assert smollm2.encode(text, add_special=False, parse_special=True) == published.encode(text, add_special_tokens=False).ids


@given(st.text(max_size=60))
def test_smollm2_encodes_any_text_as_the_published_tokenizer(smollm2: Tokenizer, published: Any, text: str) -> None:
    assert smollm2.encode(text, add_special=False, parse_special=True) == published.encode(text, add_special_tokens=False).ids


@given(st.text(max_size=80))
def test_smollm2_text_round_trips_where_its_vocabulary_has_the_bytes(smollm2: Tokenizer, text: str) -> None:
    characters = byte_characters()
    assume(all(characters[byte] in set(smollm2.vocabulary.pieces[:1000]) for byte in text.encode()))
    ids = plain(smollm2, text)
    assert smollm2.decode(ids) == text
    assert b"".join(smollm2.token_bytes(i) for i in ids) == text.encode()


def test_smollm2_knows_its_marks(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert smollm2.bos_id == 1
    assert smollm2.eos_ids == (2, 0)
    assert [smollm2.token_text(i) for i in (0, 1, 2)] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [i for i in range(smollm2.vocab_size) if smollm2.is_special(i)] == list(range(17))
    assert smollm2.chat_template is not None


def test_the_vocabulary_alone_gives_the_same_bytes(smollm2: Tokenizer, smollm2_path: Path) -> None:
    vocabulary = load_vocabulary(open_checkpoint(smollm2_path))
    assert [vocabulary.token_bytes(i) for i in range(len(vocabulary))] == [smollm2.token_bytes(i) for i in range(smollm2.vocab_size)]


def test_ids_of_the_models_padding_stand_for_nothing(smollm2: Tokenizer) -> None:
    assert smollm2.token_bytes(smollm2.vocab_size) == b""
    assert not smollm2.is_special(smollm2.vocab_size)
    assert smollm2.decode([smollm2.vocab_size]) == ""


def test_control_text_is_a_mark_only_where_marks_are_meant(smollm2: Tokenizer) -> None:
    meant, typed = (smollm2.encode(CONTROL_TEXT, add_special=False, parse_special=flag) for flag in (True, False))
    assert [i for i in meant if smollm2.is_special(i)] == [1, 2, 0, 1]
    assert not any(smollm2.is_special(i) for i in typed)
    assert smollm2.decode(typed) == CONTROL_TEXT
    assert smollm2.decode(meant, skip_special_tokens=False) == CONTROL_TEXT
    assert smollm2.decode(meant) == "user\nHi \n assistant\n"


def test_a_lone_surrogate_is_the_callers_error(smollm2: Tokenizer) -> None:
    for parse_special in (False, True):
        with pytest.raises(RequestError, match="lone surrogate at character 1"):
            smollm2.encode("a\ud800b", add_special=True, parse_special=parse_special)


def test_smollm2_loads_within_a_fifth_of_a_second(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    assert checkpoint.metadata

    def cost_s() -> float:
        start = time.process_time()
        load_tokenizer(checkpoint)
        return time.process_time() - start

    assert min(cost_s() for _ in range(5)) < 0.2


@pytest.mark.parametrize("unit", ["a", " ", "\n", "!", "é", "ab "])
def test_encoding_takes_linear_time(smollm2: Tokenizer, unit: str) -> None:
    def cost_s(num_units: int) -> float:
        text = unit * num_units
        start = time.process_time()
        plain(smollm2, text)
        return time.process_time() - start

    few, many = 20_000, 400_000
    small, large = min(cost_s(few) for _ in range(3)), min(cost_s(many) for _ in range(2))
    # Linear is 20 times as long, n log n 25 times, quadratic 400 times.
    assert large < 100 * max(small, 0.001)


def test_exactly_one_bos_is_added() -> None:
    tokenizer = tiny(byte_level_metadata(control=("<s>", "</s>"), bos_token_id=256, eos_token_id=257, add_bos_token=True))
    assert tokenizer.encode("a", add_special=True, parse_special=True)[0] == 256
    assert tokenizer.encode("<s>a", add_special=True, parse_special=True).count(256) == 1
    assert tokenizer.encode("<s>a", add_special=True, parse_special=False).count(256) == 1
    assert tokenizer.encode("a", add_special=False, parse_special=True).count(256) == 0
    assert tokenizer.encode("", add_special=True, parse_special=True) == [256]


def test_end_tokens_are_those_named_and_those_known() -> None:
    control = ("<s>", "</s>", "<|eot_id|>", "<extra>")
    tokenizer = tiny(byte_level_metadata(control=control, eos_token_id=259, eot_token_id=258, eom_token_id=256))
    assert tokenizer.eos_ids == (259, 258, 256, 257)


def test_words_that_end_turns_elsewhere_are_text_where_they_are_no_control_tokens() -> None:
    tokenizer = tiny(byte_level_metadata(control=("<s>",), defined=("<|im_end|>",), eos_token_id=256))
    assert tokenizer.eos_ids == (256,)


def test_user_defined_tokens_are_found_in_any_text() -> None:
    tokenizer = tiny(byte_level_metadata(defined=("<tool_call>",)))
    assert plain(tokenizer, "a<tool_call>b") == [tokenizer.vocabulary.pieces.index(piece) for piece in ("a", "<tool_call>", "b")]
    assert tokenizer.decode([256]) == "<tool_call>"


def test_digits_stay_apart_by_the_smollm_rule() -> None:
    merges = ("Ġ Ġ", "1 2")
    words = {rule: plain(tiny(byte_level_metadata(merges) | {"tokenizer.ggml.pre": rule}), "  12") for rule in ("smollm", "gpt-2")}
    names = {rule: [[*byte_characters(), "ĠĠ", "12"][i] for i in ids] for rule, ids in words.items()}
    assert names == {"smollm": ["ĠĠ", "1", "2"], "gpt-2": ["Ġ", "Ġ", "12"]}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"tokenizer.ggml.model": "wordpiece"}, "tokenizer.ggml.model` has tokenizer `wordpiece`"),
        ({"tokenizer.ggml.model": 7}, "tokenizer.ggml.model` has a int; expected a string"),
        ({"tokenizer.ggml.pre": "from-mars"}, "pre-tokenizer `from-mars`, which is not known here"),
        ({"tokenizer.ggml.tokens": 3}, "tokenizer.ggml.tokens` has no list of strings"),
        ({"tokenizer.ggml.token_type": np.array([1, 1])}, "2 kinds for 256 tokens"),
        ({"tokenizer.ggml.token_type": np.full(256, 9)}, "expected as many, from 1 to 6"),
        ({"tokenizer.ggml.merges": ["a b"]}, "tables do not fit together"),
        ({"tokenizer.ggml.merges": ["ab"]}, "tables do not fit together"),
        ({"tokenizer.ggml.bos_token_id": 256}, "`256`; expected a token id below 256"),
        ({"tokenizer.ggml.eos_token_id": -1}, "expected a token id below 256"),
        ({"tokenizer.ggml.add_bos_token": "yes"}, "expected a truth value"),
    ],
)
def test_a_broken_tokenizer_is_refused_with_its_place(entries: dict[str, MetaValue], message: str) -> None:
    with pytest.raises(ModelError) as failure:
        tiny(byte_level_metadata() | entries)
    assert message in str(failure.value)


def test_a_file_that_names_no_word_rule_gets_gpt2s_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = byte_level_metadata(("1 2",)) | {"tokenizer.ggml.pre": "default"}
    assert plain(tiny(metadata), "12") == [256]
    assert "text.no_pre_tokenizer_named" in capsys.readouterr().err


def test_a_vocabulary_that_cannot_spell_text_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = byte_level_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tiny(metadata | {"tokenizer.ggml.tokens": ["?" * 9 if token == "a" else token for token in tokens]})
    assert "text.vocabulary_lacks_bytes" in capsys.readouterr().err


def test_smollm2_loads_without_a_warning(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_tokenizer(open_checkpoint(smollm2_path))
    assert "warning" not in capsys.readouterr().err


@given(st.sets(st.text("ab▁", min_size=2, max_size=6), max_size=12), st.text("ab cé", max_size=24), st.booleans(), st.randoms())
def test_sentencepiece_merges_as_the_library_does(pieces: set[str], text: str, has_prefix: bool, random: Any) -> None:
    ordered = ["a", "b", "▁", *sorted(pieces)]
    random.shuffle(ordered)
    metadata = sentencepiece_metadata({piece: -float(rank) for rank, piece in enumerate(ordered)}, add_space_prefix=has_prefix)
    tokenizer = tiny(metadata)
    scores = metadata["tokenizer.ggml.scores"]
    assert isinstance(scores, np.ndarray)
    oracle = SentencePieceOracle(tokenizer.vocabulary, scores.tolist(), unknown_id=0)
    ids = plain(tokenizer, text)
    assert ids == oracle.encode(text)
    assert tokenizer.decode(ids) == oracle.decode(ids) == text


def test_the_added_space_follows_every_control_token_and_decoding_takes_it_away() -> None:
    tokenizer = tiny(sentencepiece_metadata({"a": 0.0, "b": -1.0, "▁": -2.0, "▁a": -3.0, "▁b": -4.0}))
    ids = tokenizer.encode("a</s>b", add_special=True, parse_special=True)
    assert [tokenizer.vocabulary.pieces[i] for i in ids] == ["<s>", "▁a", "</s>", "▁b"]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s>a</s>b"
    assert plain(tokenizer, "") == []


def test_sentencepiece_without_bytes_says_unknown() -> None:
    pieces = ["<unk>", "a", "▁"]
    metadata: dict[str, MetaValue] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(pieces),
        "tokenizer.ggml.token_type": np.array([2, 1, 1], np.int32),
        "tokenizer.ggml.scores": np.zeros(3, np.float32),
        "tokenizer.ggml.add_space_prefix": False,
    }
    assert plain(tiny(metadata), "aéa") == [1, 0, 1]


@pytest.mark.parametrize("entry", ["scores", "token_type"])
def test_a_sentencepiece_table_of_the_wrong_length_is_refused(entry: str) -> None:
    metadata = sentencepiece_metadata({"a": 0.0}) | {f"tokenizer.ggml.{entry}": np.ones(5, np.int32)}
    with pytest.raises(ModelError, match=f"tokenizer.ggml.{entry}"):
        tiny(metadata)


def test_a_byte_that_is_spelled_otherwise_is_refused() -> None:
    metadata = sentencepiece_metadata({"a": 0.0})
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    with pytest.raises(ModelError, match="a byte spelled `0x0A`"):
        tiny(metadata | {"tokenizer.ggml.tokens": ["0x0A" if token == "<0x0A>" else token for token in tokens]})


def cached_model(name: str) -> Path:
    """A model of the long checks; missing means failure."""
    path = models_dir() / name
    assert path.exists(), f"{path} is missing"
    return path


@pytest.mark.slow
def test_qwen_encodes_as_transformers_does() -> None:
    from tokenizers import normalizers

    tokenizer, encoder = load_tokenizer(open_checkpoint(cached_model(QWEN))), transformers_encoder(cached_model(QWEN))
    # As in `Qwen2Tokenizer` itself; the reading of GGUF files leaves it out.
    encoder.normalizer = normalizers.NFC()
    for text in (*TEXTS, CONTROL_TEXT, *project_texts()):
        assert tokenizer.encode(text, add_special=False, parse_special=True) == encoder.encode(text, add_special_tokens=False).ids


@pytest.mark.slow
def test_gemma_encodes_as_sentencepiece_does() -> None:
    checkpoint = open_checkpoint(cached_model(GEMMA))
    tokenizer = load_tokenizer(checkpoint)
    scores = checkpoint.metadata["tokenizer.ggml.scores"]
    assert isinstance(scores, np.ndarray)
    oracle = SentencePieceOracle(tokenizer.vocabulary, scores.tolist(), unknown_id=3)
    runs = [character * length for character in "a =-#\n\t" for length in range(1, 70)]
    for text in (*TEXTS, CONTROL_TEXT, *project_texts(), *runs):
        ids = plain(tokenizer, text)
        assert ids == oracle.encode(text)
        assert tokenizer.decode(ids) == text.replace(SPACE_MARK, " ")


def project_texts() -> list[str]:
    """This project's own code and prose."""
    root = Path(__file__).parents[2]
    return [path.read_text(encoding="utf-8") for folder in ("src", "docs") for path in sorted((root / folder).rglob("*.[mp][dy]"))]


class RecordingTokenizer(Tokenizer):
    """Remembers how much it was given to encode."""

    def __init__(self, other: Tokenizer) -> None:
        super().__init__(other.vocabulary, other._encoder, other.splitter)
        self.num_encoded = 0

    def _encode_plain(self, text: str) -> list[int]:
        self.num_encoded += len(text)
        return super()._encode_plain(text)


@pytest.mark.parametrize("unit", ["7", "a ", "é", "<|im_", "<|im_end|>", "\n", " "])
def test_a_long_text_costs_no_more_to_refuse_than_the_context_is_long(smollm2: Tokenizer, unit: str) -> None:
    tokenizer = RecordingTokenizer(smollm2)
    text = unit * (16 * EXACT_CHARS // len(unit))
    with pytest.raises(ContextLengthError, match="at least") as caught:
        tokenizer.encode(text, add_special=True, parse_special=True, max_model_len=2000)
    assert caught.value.num_tokens > 2000
    assert tokenizer.num_encoded <= 3 * SLICE_CHARS


def test_a_text_over_the_context_is_counted_to_its_end_when_it_is_not_very_long(smollm2: Tokenizer) -> None:
    text = "7" * (EXACT_CHARS // 4)
    with pytest.raises(ContextLengthError, match=f"holds 2000 tokens, but the prompt has {len(text)}"):
        smollm2.encode(text, add_special=True, parse_special=True, max_model_len=2000)


def test_a_very_long_text_that_fits_is_encoded_as_ever(smollm2: Tokenizer) -> None:
    text = "word and " * (EXACT_CHARS // 8)
    ids = smollm2.encode(text, add_special=True, parse_special=True)
    assert smollm2.encode(text, add_special=True, parse_special=True, max_model_len=len(ids)) == ids


@pytest.mark.parametrize("bad", ["\udcff", "a\udc80b", chr(0xD800)])
def test_tokens_that_are_no_utf8_load_and_give_their_bytes(bad: str) -> None:
    byte_level = tiny(byte_level_metadata(control=("<bos>", bad), defined=(bad + "x",)))
    pieces = tiny(sentencepiece_metadata({SPACE_MARK: -1.0, bad: -2.0}, control=("<unk>", "<s>", "</s>", bad + "y")))
    for tokenizer in (byte_level, pieces):
        ids = plain(tokenizer, "abc")
        assert tokenizer.decode(ids) == "abc"
        every = b"".join(tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size))
        assert bad.encode("utf-8", "replace" if bad == chr(0xD800) else "surrogateescape") in every


def test_a_piece_too_long_to_cut_every_way_is_refused() -> None:
    with pytest.raises(ModelError, match="100000 characters; expected at most 512"):
        tiny(sentencepiece_metadata({"a": -1.0, "a" * 100_000: -2.0}))
