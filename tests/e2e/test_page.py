"""The page in a real browser: a person types, sends, and sees the answer come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chromium import Browser
from tests.e2e.rehearsal import Answer, Rehearsal, rehearsal

ANSWERS = "[...document.querySelectorAll('.assistant')]"
LAST = f"{ANSWERS}.at(-1)"
IS_DONE = f"{LAST}?.getAttribute('aria-busy') === 'false'"
PROBLEM = "document.querySelector('#problem:not([hidden])')?.innerText"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Rehearsal]:
    with rehearsal() as stage:
        yield stage


@pytest.fixture
def page(browser: Browser, server: Rehearsal) -> Iterator[Browser]:
    server.answers.clear()
    server.asked.clear()
    browser.problems.clear()
    browser.open(server.url)
    browser.wait_for("document.querySelector('#model').innerText === 'rehearsal:1b'")
    yield browser
    assert browser.problems == []


def say(page: Browser, text: str) -> None:
    page.click("#prompt")
    page.type(text)
    page.press("Enter")


def answer_text(page: Browser) -> str:
    return str(page.value(f"{LAST}.querySelector('.text').innerText"))


def test_sent_message_is_answered_with_its_pace(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(["Hello", " wörld", " 👋🏽"]))
    say(page, "Hi there")
    page.wait_for(IS_DONE)
    assert answer_text(page) == "Hello wörld 👋🏽"
    assert page.value("document.querySelector('.user').innerText") == "Hi there"
    assert (
        page.value(f"{LAST}.querySelector('.pace').innerText") == "3 tokens · first after 12 ms · 50.0 tok/s · 16 prompt tokens from cache"
    )
    assert page.value("document.querySelector('#prompt').value") == ""
    assert server.asked[0]["messages"] == [{"role": "user", "content": "Hi there"}]
    assert server.asked[0]["model"] == "rehearsal:1b"


def test_answer_shows_while_it_grows_and_stop_keeps_it(page: Browser, server: Rehearsal) -> None:
    server.answers += [Answer(["so far"], end="hang"), Answer(["again"])]
    say(page, "Go on")
    page.wait_for(f"{LAST}?.innerText === 'so far'")
    assert page.value(f"{LAST}.getAttribute('aria-busy')") == "true"
    page.click("#stop")
    page.wait_for(IS_DONE)
    assert page.value(PROBLEM) is None
    say(page, "And")
    page.wait_for(f"{ANSWERS}.length === 2 && {IS_DONE}")
    contents = [message["content"] for message in server.asked[1]["messages"]]
    assert contents == ["Go on", "so far", "And"]


def test_escape_stops_the_answer(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(["so far"], end="hang"))
    say(page, "Go on")
    page.wait_for(f"{LAST}?.innerText === 'so far'")
    page.press("Escape")
    page.wait_for(IS_DONE)
    assert "stopped by you" in page.value(f"{LAST}.innerText")


def test_markup_in_an_answer_is_shown_as_text(page: Browser, server: Rehearsal) -> None:
    hostile = "<script>document.title='owned'</script> <img src=x onerror=\"document.title='owned'\"> [x](javascript:alert(1))"
    server.answers.append(Answer([hostile[:9], hostile[9:]]))
    say(page, "Be nasty")
    page.wait_for(IS_DONE)
    assert answer_text(page) == hostile
    assert page.value(f"{LAST}.querySelectorAll('script, img, a').length") == 0
    assert page.value("document.title") == "rehearsal:1b · Paceline"


def test_markup_in_a_message_is_shown_as_text(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(["ok"]))
    say(page, "<b>bold</b>")
    page.wait_for(IS_DONE)
    assert page.value("document.querySelector('.user').innerText") == "<b>bold</b>"


def test_security_policy_refuses_inline_scripts(browser: Browser, server: Rehearsal) -> None:
    browser.open(server.url)
    browser.value("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))")
    assert browser.value("window.owned") is None


def test_markdown_becomes_elements(page: Browser, server: Rehearsal) -> None:
    text = "# Title\nA **bold** `code`\n\n- one\n- two\n\n1. first\n\n```python\nif a < b:\n    pass\n```\nend"
    server.answers.append(Answer(list(text)))
    say(page, "Show")
    page.wait_for(IS_DONE)
    tags = page.value(f"[...{LAST}.querySelectorAll('.text *')].map((e) => e.tagName.toLowerCase())")
    assert tags == ["h2", "p", "strong", "code", "ul", "li", "li", "ol", "li", "pre", "code", "p"]
    assert page.value(f"{LAST}.querySelector('pre').innerText") == "if a < b:\n    pass"


def test_shift_enter_starts_a_line(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(["ok"]))
    page.type("one")
    page.press("Enter", shift=True)
    page.type("two")
    page.press("Enter")
    page.wait_for(IS_DONE)
    assert server.asked[0]["messages"][0]["content"] == "one\ntwo"


def test_refused_message_is_given_back_with_the_reason(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(status=400, message="The context holds 64 tokens, but the prompt has 99."))
    say(page, "Too long")
    page.wait_for(f"{PROBLEM} === 'The context holds 64 tokens, but the prompt has 99.'")
    page.wait_for("document.querySelector('#prompt').value === 'Too long'")
    assert page.value("document.querySelectorAll('.message').length") == 0


@pytest.mark.parametrize(("end", "problem"), [("break", "The answer broke off: the connection was closed."), ("error", "The engine died.")])
def test_answer_that_breaks_off_says_so_and_stays(page: Browser, server: Rehearsal, end: str, problem: str) -> None:
    server.answers.append(Answer(["half"], end="break" if end == "break" else "error", message="The engine died."))
    say(page, "Go")
    page.wait_for(f"{PROBLEM} === {problem!r}")
    assert answer_text(page) == "half"


def test_new_chat_forgets_the_conversation(page: Browser, server: Rehearsal) -> None:
    server.answers += [Answer(["slow"], end="hang"), Answer(["fresh"])]
    say(page, "First")
    page.wait_for(f"{LAST}?.innerText === 'slow'")
    page.click("#new-chat")
    page.wait_for("document.querySelectorAll('.message').length === 0")
    say(page, "Second")
    page.wait_for(IS_DONE)
    assert server.asked[1]["messages"] == [{"role": "user", "content": "Second"}]


def test_settings_travel_with_the_request(page: Browser, server: Rehearsal) -> None:
    server.answers.append(Answer(["ok"], finish_reason="length"))
    page.value("document.querySelector('details').open = true")
    for selector, text in (
        ("#temperature", "0.5"),
        ("#max-tokens", "7"),
        ("#system", "Be brief."),
        ("#api-key", "secret"),
        ("#prompt", "Hi"),
    ):
        page.click(selector)
        page.type(text)
    page.press("Enter")
    page.wait_for(IS_DONE)
    asked = server.asked[0]
    assert (asked["temperature"], asked["max_tokens"], asked["authorization"]) == (0.5, 7, "Bearer secret")
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "cut off at the limit of tokens" in page.value(f"{LAST}.innerText")


def test_page_fits_a_phone(tmp_path: Path, server: Rehearsal) -> None:
    with Browser(tmp_path) as phone:
        phone.send("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
        phone.open(server.url)
        server.answers.append(Answer(["word " * 50 + "\n```\n" + "wide" * 100 + "\n```"]))
        say(phone, "long" * 40)
        phone.wait_for(IS_DONE)
        assert phone.value("document.documentElement.scrollWidth") == 360
        assert phone.value("document.querySelector('main').scrollWidth") <= 360
        assert phone.value("document.querySelector('#send').getBoundingClientRect().right") <= 360
