"""Any way of cutting a sequence of tokens gives the text of the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.detokenizer import Detokenizer, decode
from paceline.text.tokenizer import Tokenizer, load_tokenizer
from paceline.text.vocabulary import Vocabulary
from tests.text.corpus import TEXTS
from tests.text.vocabularies import MemoryCheckpoint, byte_level_metadata, sentencepiece_metadata

# Ids 0 to 255 are the bytes in the order of the vocabulary's file, 256 and 257 are marks.
BYTES = load_tokenizer(MemoryCheckpoint(byte_level_metadata(control=("<s>", "</s>"), defined=("<tool>",)))).vocabulary
PIECES = load_tokenizer(MemoryCheckpoint(sentencepiece_metadata({"▁": 0.0, "▁a": -1.0, "b": -2.0, "▁▁": -3.0}))).vocabulary

sequences = st.lists(st.integers(0, 258), max_size=40)


def pushed(detokenizer: Detokenizer, token_ids: list[int], cuts: list[int]) -> str:
    """The text of a sequence pushed in pieces."""
    borders = sorted({0, len(token_ids), *(cut % (len(token_ids) + 1) for cut in cuts)})
    pieces = [detokenizer.push(token_ids[start:end]) for start, end in pairwise(borders)]
    return "".join([*pieces, detokenizer.finish()])


@pytest.mark.parametrize("vocabulary", [BYTES, PIECES], ids=["byte_level", "sentencepiece"])
@given(sequences, st.lists(st.integers(0, 1000), max_size=40), st.booleans(), st.booleans())
def test_any_cutting_gives_the_text_of_the_whole(
    vocabulary: Vocabulary, token_ids: list[int], cuts: list[int], skips: bool, continues: bool
) -> None:
    whole, cut = (Detokenizer(vocabulary, skip_special_tokens=skips, is_continuation=continues) for _ in range(2))
    text = pushed(whole, token_ids, [])
    assert pushed(cut, token_ids, cuts) == text
    if not continues:
        assert decode(vocabulary, token_ids, skip_special_tokens=skips) == text


@given(sequences, st.booleans())
def test_invalid_bytes_become_what_one_decoding_makes_of_them(token_ids: list[int], skips: bool) -> None:
    data = b"".join(b"" if skips and i in (256, 257) else BYTES.token_bytes(i) for i in token_ids)
    assert decode(BYTES, token_ids, skip_special_tokens=skips) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("text", TEXTS)
def test_a_stream_never_sends_half_a_character(text: str, smollm2: Tokenizer) -> None:
    detokenizer = Detokenizer(smollm2.vocabulary)
    ids = smollm2.encode(text, add_special=False, parse_special=False)
    deltas = [detokenizer.push([token_id]) for token_id in ids]
    assert not any("\ufffd" in delta for delta in deltas)
    assert "".join(deltas) + detokenizer.finish() == smollm2.decode(ids)


def test_the_end_of_a_sequence_shows_what_was_half_a_character() -> None:
    detokenizer = Detokenizer(BYTES)
    ids = [BYTES.pieces.index(piece) for piece in "âĤ"]
    assert [detokenizer.push(ids), detokenizer.finish()] == ["", "\ufffd"]


def test_a_continuation_keeps_its_first_space_and_a_whole_text_does_not() -> None:
    ids = [PIECES.pieces.index(piece) for piece in ("▁a", "b", "▁a")]
    assert Detokenizer(PIECES).push(ids) == " ab a"
    assert Detokenizer(PIECES, is_continuation=False).push(ids) == "ab a"


def test_only_the_added_space_is_taken_away() -> None:
    assert decode(PIECES, [PIECES.pieces.index("▁▁")]) == " "
