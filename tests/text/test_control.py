"""Control tokens are found wherever they stand, and can be broken without a trace."""

from __future__ import annotations

from itertools import accumulate, count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.text.control import ControlSplitter

IDS = {"<|a|>": 10, "<|ab|>": 11, "|ab|": 12, "<": 13, "[b]": 14}
SPLITTER = ControlSplitter(IDS)

texts = st.lists(st.sampled_from([*IDS, "<|", "a", "b", "|", ">", "[", "]", " ", "é"]), max_size=12).map("".join)


class StandIns:
    """A new letter for each character that needs one."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}
        self._codes = count(0x12000)

    def take(self, character: str) -> str:
        """Its stand-in."""
        return self.table.setdefault(character, chr(next(self._codes)))

    def restored(self, text: str) -> str:
        """As it was."""
        return text.translate({ord(stand_in): character for character, stand_in in self.table.items()})


@given(texts)
def test_splitting_loses_nothing(text: str) -> None:
    names = {token_id: name for name, token_id in IDS.items()}
    assert "".join(names[piece] if isinstance(piece, int) else piece for piece in SPLITTER.split(text)) == text


def test_the_leftmost_longest_token_wins() -> None:
    assert SPLITTER.split("x<|ab|>|ab|<|a") == ["x", 11, 12, 13, "|a"]


@given(texts, texts, texts)
@example("[", "b]", "")
@example("", "<", "|a|>")
@example("[", "", "b]")
def test_broken_text_holds_no_token_and_neither_begins_nor_ends_one(before: str, text: str, after: str) -> None:
    stand_ins = StandIns()
    broken = SPLITTER.neutralised(text, stand_ins.take)
    assert stand_ins.restored(broken) == text
    assert len(broken) == len(text)
    start, end = len(before), len(before) + len(text)
    # A token that begins before the text and ends after it is the doing of whoever wrote what stands around it.
    assert all(last <= start or first >= end or first < start <= end < last for first, last in marks(before + broken + after))


def marks(text: str) -> list[tuple[int, int]]:
    """Where the control tokens of a text begin and end."""
    names = {token_id: name for name, token_id in IDS.items()}
    ends = accumulate(len(names[piece]) if isinstance(piece, int) else len(piece) for piece in SPLITTER.split(text))
    pieces = zip(SPLITTER.split(text), ends, strict=True)
    return [(end - len(names[piece]), end) for piece, end in pieces if isinstance(piece, int)]


def test_text_without_marks_stays_as_it_is() -> None:
    def refuse(character: str) -> str:
        pytest.fail(f"{character} needs no stand-in")

    assert ControlSplitter({"<|im_end|>": 1}).neutralised("1 < 2 and a > b |", refuse) == "1 < 2 and a > b |"


def test_a_vocabulary_without_marks_splits_nothing() -> None:
    assert ControlSplitter({}).split("<s>a</s>") == ["<s>a</s>"]
    assert ControlSplitter({"<s>": 1}).split("") == []
