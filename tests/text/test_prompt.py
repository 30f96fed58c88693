"""A chat's ids are those of its text, with marks where the template put them and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ContextLengthError, RequestError
from paceline.text.prompt import ChatEncoder, load_chat_encoder
from paceline.text.tokenizer import Tokenizer, load_tokenizer
from tests.text.corpus import TEXTS
from tests.text.templates import TURNS
from tests.text.vocabularies import MemoryCheckpoint, byte_level_metadata

MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


@pytest.fixture(scope="module")
def chats(smollm2: Tokenizer) -> ChatEncoder:
    """The default model's chats."""
    return load_chat_encoder(smollm2)


def user(content: str) -> list[dict[str, Any]]:
    """One user turn."""
    return [{"role": "user", "content": content}]


def turns_tokenizer(**entries: Any) -> Tokenizer:
    """A tokenizer whose model wants a BOS, as its template does."""
    control = ("<bos>", "<start_of_turn>", "<end_of_turn>")
    return load_tokenizer(MemoryCheckpoint(byte_level_metadata(control=control, bos_token_id=256, add_bos_token=True, **entries)))


@given(st.text(max_size=50).filter(lambda text: "<" not in text and ">" not in text))
def test_a_chat_encodes_as_its_whole_text(chats: ChatEncoder, content: str) -> None:
    text = chats.template.render(user(content))
    assert chats.render_to_ids(user(content)) == chats.tokenizer.encode(text, add_special=True, parse_special=True)


@pytest.mark.parametrize("content", TEXTS)
def test_control_text_of_a_user_stays_plain_text(chats: ChatEncoder, content: str) -> None:
    ids = chats.render_to_ids(user(content))
    empty = chats.render_to_ids(user(""))
    assert [i for i in ids if chats.tokenizer.is_special(i)] == [i for i in empty if chats.tokenizer.is_special(i)]
    start = chats.tokenizer.encode("<|im_start|>user\n", add_special=False, parse_special=True)
    end = chats.tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n", add_special=False, parse_special=True)
    assert ids[-len(end) :] == end
    plain = chats.tokenizer.encode("user\n" + content, add_special=False, parse_special=False)
    assert ids[len(ids) - len(end) - len(plain) - 1 : -len(end)] == [start[0], *plain]


@given(st.lists(st.sampled_from([*MARKS, "<|im_", "end|>", "<", ">", "|>", "a", " ", "\n"]), max_size=8).map("".join))
def test_no_piece_of_a_message_forges_a_mark(chats: ChatEncoder, content: str) -> None:
    messages = [*user(content), {"role": "assistant", "content": content}, *user(content)]
    ids, text = chats.render_to_ids(messages), chats.template.render(messages)
    assert chats.tokenizer.decode(ids, skip_special_tokens=False) == text
    # System, three turns, and the answer to come: five begin, four end.
    assert [ids.count(i) for i in (0, 1, 2)] == [0, 5, 4]


def test_names_arguments_tools_and_variables_forge_no_mark_either(smollm2: Tokenizer) -> None:
    source = "<|im_start|>{{ tools | tojson }}{{ messages[0].name }}{{ messages[0].tool_calls | tojson }}{{ extra }}<|im_end|>"
    call = {"type": "function", "function": {"name": "f<|im_end|>", "arguments": '{"<|im_start|>": "<|im_end|>"}'}}
    messages = [{"role": "assistant", "content": None, "name": "<|im_end|>", "tool_calls": [call]}]
    ids = load_chat_encoder(smollm2, source).render_to_ids(messages, tools=[{"<|im_end|>": ["<|im_end|>"]}], extra="<|endoftext|>")
    assert [i for i in ids if smollm2.is_special(i)] == [1, 2]
    assert smollm2.decode(ids).count("<|im_end|>") == 5


def test_template_and_tokenizer_together_give_one_bos() -> None:
    tokenizer = turns_tokenizer()
    for source in (TURNS, TURNS.removeprefix("{{ bos_token }}")):
        ids = load_chat_encoder(tokenizer, source).render_to_ids(user("Hi <bos>"))
        assert (ids[0], ids.count(256)) == (256, 1)


def test_a_continued_chat_ends_with_the_message(chats: ChatEncoder) -> None:
    messages = [*user("Count."), {"role": "assistant", "content": "One, <|im_end|> two,"}]
    ids = chats.render_to_ids(messages, continue_final_message=True)
    assert chats.tokenizer.decode(ids, skip_special_tokens=False).endswith("<|im_start|>assistant\nOne, <|im_end|> two,")
    assert ids.count(2) == 2


def test_a_lone_surrogate_in_a_message_is_the_callers_error(chats: ChatEncoder) -> None:
    with pytest.raises(RequestError, match="lone surrogate") as failure:
        chats.render_to_ids(user("a\udfff"))
    assert failure.value.param == "messages"


def test_a_variable_may_have_any_name(smollm2: Tokenizer) -> None:
    variables: dict[str, Any] = {"self": "a", "context": "b", "source": "c"}
    ids = load_chat_encoder(smollm2, "{{ self }}{{ context }}{{ source }}").render_to_ids(user("x"), **variables)
    assert smollm2.decode(ids).endswith("bc")


def test_ill_formed_messages_are_refused(chats: ChatEncoder) -> None:
    with pytest.raises(RequestError, match="expected 1 to"):
        chats.render_to_ids([])


def test_a_model_without_a_template_gets_one_and_that_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_chat_encoder(turns_tokenizer()).render_to_ids(user("hi"))
    assert "warning text.chat_template" in (logged := capsys.readouterr().err)
    assert "no chat template" in logged


def test_messages_that_no_context_holds_are_refused_before_they_are_encoded(chats: ChatEncoder) -> None:
    with pytest.raises(RequestError, match="at most 8388608") as caught:
        chats.render_to_ids(user("<|im_end|>" * 900_000), 8192)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(ContextLengthError, match="at least"):
        chats.render_to_ids(user("a " * 2_000_000), 8192)
