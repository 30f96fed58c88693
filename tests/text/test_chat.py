"""Templates render as in `transformers`, refuse in their own words, and cannot run away."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from paceline.errors import ModelError, RequestError
from paceline.formats.open import open_checkpoint
from paceline.text.chat import CHATML, MAX_TEMPLATE_CHARS, PLAIN, ChatTemplate, chat_template_for
from paceline.text.tokenizer import Tokenizer, load_tokenizer, load_vocabulary
from tests.text.templates import TOOLS, TURNS
from tests.text.test_tokenizer import QWEN, cached_model
from tests.text.vocabularies import MemoryCheckpoint, byte_level_metadata

USER = [{"role": "user", "content": "Hi"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  What is <b>1 & 2</b>? "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nThree, 'maybe' \"so\"."},
    {"role": "user", "content": "你好 👩🏽‍🚀\n\nand {{ braces }} {% too %}"},
]
CALLS = [
    *TALK,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": "é<&>'\""}}}] * 4,
    },
    {"role": "tool", "content": "42", "name": "f"},
]
FUNCTION = {
    "type": "function",
    "function": {"name": "f", "description": "Adds <1>", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
}


def by_transformers(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    """The same by `transformers`."""
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered: Any = render_jinja_template([messages], chat_template=source, **options)[0]
    return str(rendered[0])


@pytest.mark.parametrize("tools", [None, [FUNCTION, FUNCTION]], ids=["plain", "tools"])
@pytest.mark.parametrize("prompts", [True, False])
@pytest.mark.parametrize("messages", [USER, TALK, CALLS], ids=["user", "talk", "calls"])
@pytest.mark.parametrize("source", [TURNS, TOOLS, CHATML, PLAIN], ids=["turns", "tools", "chatml", "plain"])
def test_templates_render_as_in_transformers(source: str, messages: list[dict[str, Any]], prompts: bool, tools: Any) -> None:
    if source == TURNS and messages is CALLS:
        messages = TALK
    template = ChatTemplate(source, bos_token="<bos>", eos_token="<eos>")
    expected = by_transformers(source, messages, add_generation_prompt=prompts, tools=tools, bos_token="<bos>", eos_token="<eos>")
    assert template.render(messages, add_generation_prompt=prompts, tools=tools) == expected


@pytest.mark.parametrize("messages", [USER, TALK])
def test_smollm2s_own_template_renders_as_in_transformers(smollm2: Tokenizer, messages: list[dict[str, Any]]) -> None:
    template = chat_template_for(smollm2.vocabulary)
    assert template.note is None
    assert template.render(messages) == by_transformers(template.source, messages, add_generation_prompt=True)


@pytest.mark.slow
@pytest.mark.parametrize("tools", [None, [FUNCTION]])
@pytest.mark.parametrize("messages", [USER, TALK, CALLS])
def test_qwens_own_template_renders_as_in_transformers(messages: list[dict[str, Any]], tools: Any) -> None:
    template = chat_template_for(load_vocabulary(open_checkpoint(cached_model(QWEN))))
    assert template.render(messages, tools=tools) == by_transformers(template.source, messages, add_generation_prompt=True, tools=tools)


def test_an_openai_call_renders_its_arguments_as_an_object() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    source = "{% for call in messages[0].tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}"
    assert ChatTemplate(source).render([{"role": "assistant", "content": None, "tool_calls": [call]}]) == '{"x": 1}'


def test_a_continued_message_ends_the_text_as_it_was_written() -> None:
    messages = [*USER, {"role": "assistant", "content": "Sure, Hi"}]
    assert ChatTemplate(CHATML).render(messages, continue_final_message=True).endswith("<|im_start|>assistant\nSure, Hi")
    with pytest.raises(RequestError, match="cannot be continued"):
        ChatTemplate("{{ messages[0].content }}").render(messages, continue_final_message=True)


def test_template_variables_arrive() -> None:
    assert ChatTemplate("{{ enable_thinking }} {{ undefined_one }}").render(USER, enable_thinking=False) == "False "


def test_the_date_is_the_given_clocks() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2024, 7, 26))
    assert template.render(USER) == "26 Jul 2024"


@pytest.mark.parametrize(("control", "source"), [(("<|im_start|>", "<|im_end|>"), CHATML), ((), PLAIN)])
def test_a_model_without_a_template_gets_a_plain_one_with_a_note(control: tuple[str, ...], source: str) -> None:
    vocabulary = load_tokenizer(MemoryCheckpoint(byte_level_metadata(control=control))).vocabulary
    template = chat_template_for(vocabulary)
    assert template.source == source
    assert "no chat template" in (template.note or "")
    given = chat_template_for(vocabulary, "{{ messages[0].content }}")
    assert (given.render(USER), given.note) == ("Hi", None)


def test_a_template_refuses_in_its_own_words() -> None:
    with pytest.raises(RequestError) as failure:
        ChatTemplate(TURNS).render([*USER, *USER])
    assert failure.value.message == "Roles must alternate user/assistant/…"
    assert failure.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.x }}",
        "{{ 1 // 0 }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{{ messages.nothing() }}",
        "{% include 'other' %}",
        "{{ range(10 ** 9) | list }}",
    ],
)
def test_a_template_that_fails_is_a_request_error(source: str) -> None:
    with pytest.raises(RequestError) as failure:
        ChatTemplate(source).render(USER)
    assert failure.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}{{ messages.__init__.__globals__ }}",
        "{{ '{x.__class__}'.format_map({'x': 1}) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ (1).to_bytes(9, 'big') }}",
        "{{ 'a'.translate({97: 'b'}) }}",
        "{{ dict.fromkeys([1]) }}",
        "{{ raise_exception.__globals__.values() }}",
        "{{ self.__init__() }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(RequestError):
        ChatTemplate(source).render(USER)


LOOP = "{% for i in range(100000) %}"
BOMBS = {
    "nested loops": LOOP * 4 + "{% endfor %}" * 4,
    "printing loops": LOOP * 2 + "a{% endfor %}{% endfor %}",
    "recursive macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loops": "{% for a in [messages] recursive %}{{ loop([messages, messages]) }}{% endfor %}",
    "map over map": "{{ range(100000) | map('string') | map('length') | select('in', range(100000) | list) | list | length }}" * 9,
    "string times": "{{ 'a' * 10 ** 9 }}",
    "string times, turned": "{{ 10 ** 9 * 'a' }}",
    "list times": "{{ ([0] * 10 ** 9) | length }}",
    "doubling by plus": "{% set ns = namespace(a='aa') %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "doubling by tilde": "{% set ns = namespace(a='aa') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "doubling a list": "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "doubling a block": "{% set a = 'aa' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
    "doubling by nesting": "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
    "nesting in dicts": "{% set ns = namespace(a={}) %}{% for i in range(60) %}{% set ns.a = dict(a=ns.a, b=ns.a) %}{% endfor %}",
    "many large strings": "{% set ns = namespace(a=[]) %}" + LOOP + "{% set ns.a = ns.a + ['a' * 8000000] %}{% endfor %}",
    "percent width": "{{ '%999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (999999999, 1) }}",
    "percent filter": "{{ '%999999999d' | format(1) }}",
    "format width": "{{ '{:>999999999}'.format('a') }}",
    "format nested width": "{{ '{:>{w}}'.format('a', w=999999999) }}",
    "format many": "{% set a = 'a' * 100000 %}{{ ('{0}' * 100000).format(a) }}",
    "padding": "{{ 'a'.ljust(10 ** 9) }}",
    "zero padding": "{{ 'a'.zfill(10 ** 9) }}",
    "expanding tabs": "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "indent": "{{ 'a' | indent(10 ** 9, true) }}",
    "indent many": "{{ ('\\n' * 1000000) | indent(1000, true, true) }}",
    "json indent": "{{ [1] | tojson(indent=10 ** 9) }}",
    "replace": "{{ ('a' * 1000000).replace('a', 'a' * 1000000) }}",
    "replace filter": "{{ ('a' * 1000000) | replace('a', 'a' * 1000000) }}",
    "join": "{{ ('a' * 1000000).join(range(100000) | map('string')) }}",
    "join filter": "{{ range(100000) | join('a' * 1000000) }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": "{% set ns = namespace(a=9) %}{% for i in range(99) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
    "rounding": "{{ 1 | round(10 ** 9, 'ceil') }}",
    "slices": "{% set a = 'a' * 8000000 %}" + LOOP + "{% set b = a[1:] %}{% endfor %}",
    "views": "{% set a = {'x': 'a' * 8000000, 'y': 'a' * 8000000} %}{{ a.items() }}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_time_and_is_the_requests_error(name: str) -> None:
    template = ChatTemplate(BOMBS[name], timeout_s=0.5)
    start = time.thread_time()
    with pytest.raises(RequestError) as failure:
        template.render(USER)
    assert failure.value.code == "chat_template_error"
    # The longest single operation between two looks at the clock works on 8 MiB; a second is a hundred times its cost. The thread's
    # own time, so that a busy machine says nothing wrong.
    assert time.thread_time() - start < 0.5 + 1.0


def test_rendering_in_two_threads_keeps_budgets_apart(smollm2: Tokenizer) -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = chat_template_for(smollm2.vocabulary)
    expected = template.render(TALK)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: template.render(TALK), range(200))) == {expected}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for %}", "does not compile"),
        ("{{ 'a' | center(3) }}", "No filter named 'center'"),
        ("{% if x %}", "line 1"),
        ("(" * 100 + "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "does not compile"),
        ("x" * (MAX_TEMPLATE_CHARS + 1), "expected at most"),
    ],
)
def test_what_is_no_template_is_refused_at_load(source: str, message: str) -> None:
    with pytest.raises(ModelError) as failure:
        ChatTemplate(source)
    assert message in str(failure.value)


def test_formatting_shows_nothing_private() -> None:
    assert ChatTemplate("{{ '[{0.__class__}]'.format(1) }}").render(USER) == "[]"


def test_messages_are_checked_before_a_template_sees_them() -> None:
    with pytest.raises(RequestError, match="expected one of"):
        ChatTemplate(CHATML).render([{"role": "robot", "content": "x"}])
