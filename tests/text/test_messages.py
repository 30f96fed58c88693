"""Messages reach a template in one form, or the caller hears what is wrong with which."""

from __future__ import annotations

import pytest

from paceline.errors import RequestError
from paceline.text.messages import MAX_MESSAGES, template_messages, texts_within, unused_characters, with_texts


def test_plain_messages_stay_as_they_are() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "Ann"}]
    assert template_messages(messages) == messages


def test_text_parts_are_joined_by_a_newline() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]
    assert template_messages([{"role": "user", "content": parts}])[0]["content"] == "a\nb\nc"


def test_the_developer_is_the_system() -> None:
    assert template_messages([{"role": "developer", "content": "x"}])[0]["role"] == "system"


def test_absent_fields_are_left_out_and_tool_calls_need_no_content() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    (message,) = template_messages([{"role": "assistant", "content": None, "name": None, "tool_calls": [call]}])
    assert message["content"] == ""
    assert "name" not in message
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
    assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}


@pytest.mark.parametrize("arguments", ["not json", "[1]", '"text"', "[" * 100_000])
def test_arguments_that_spell_no_object_stay_text(arguments: str) -> None:
    (message,) = template_messages([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}])
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ("hello", "`messages` is no list"),
        (None, "`messages` is no list"),
        ([], "has 0 entries; expected 1 to"),
        ([{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1), "expected 1 to"),
        (["hello"], "`messages[0]` is a str; expected an object"),
        ([{"content": "x"}], "`messages[0].role` is `None`"),
        ([{"role": "robot", "content": "x"}], "`messages[0].role` is `robot`; expected one of system, developer"),
        ([{"role": ["user"], "content": "x"}], "`messages[0].role` is"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": None}], "`messages[1].content` is null"),
        ([{"role": "assistant", "content": None}], "`messages[0].content` is null"),
        ([{"role": "user"}], "`messages[0].content` is null"),
        ([{"role": "user", "content": 3}], "`messages[0].content` is 3"),
        ([{"role": "user", "content": []}], "`messages[0].content` is []"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "`messages[0].content[0]` has type `image_url`"),
        ([{"role": "user", "content": [{"type": "text"}]}], "`messages[0].content[0].text` is missing"),
        ([{"role": "assistant", "tool_calls": "f"}], "`messages[0].tool_calls` is no list"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "`messages[0].tool_calls[0].function` has no name"),
    ],
)
def test_what_is_wrong_is_named(messages: object, expected: str) -> None:
    with pytest.raises(RequestError) as failure:
        template_messages(messages)
    assert expected in failure.value.message
    assert failure.value.param == "messages"


def test_every_string_is_found_and_can_be_changed() -> None:
    value = {"a": ["b", {"c": "d"}, 1, None], "e": True}
    assert sorted(texts_within(value)) == ["a", "b", "c", "d", "e"]
    assert with_texts(value, str.upper) == {"A": ["B", {"C": "D"}, 1, None], "E": True}


def test_nesting_beyond_the_stack_is_the_callers_error() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RequestError, match="nest too deep"):
        with_texts(deep, str)
    assert list(texts_within(deep)) == []


def test_unused_characters_print_and_occur_nowhere() -> None:
    first, second = (next(unused_characters(texts)) for texts in ([], ["\U00012000"]))
    assert (first, second) == ("\U00012000", "\U00012001")
    assert repr(first) == f"'{first}'"
    with pytest.raises(RequestError, match="cuneiform"):
        next(unused_characters(map(chr, range(0x12000, 0x12390))))
