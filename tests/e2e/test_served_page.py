"""The page as `paceline serve` really serves it, with the answers that it really streams."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.formats.open import open_checkpoint
from paceline.text.tokenizer import load_tokenizer
from tests.contract.live_server import live_server
from tests.e2e.chromium import Browser
from tests.generators.tiny_models import tiny_gguf

SAYS = ("Hello from the engine.", "<script>document.title = 'owned'</script> **bold** 👋🏽 <b>x</b>")
IS_DONE = "document.querySelectorAll('.assistant[aria-busy=false]').length"


def scripted_model(folder: Path) -> tuple[Path, Path]:
    """A tiny model, and a script of what it will say."""
    model = tiny_gguf(folder / "tiny.gguf", "llama")
    tokenizer = load_tokenizer(open_checkpoint(model))
    scripts = [tokenizer.encode(text, add_special=False, parse_special=False) for text in SAYS]
    (folder / "script.json").write_text(json.dumps(scripts))
    return model, folder / "script.json"


def test_person_chats_with_the_served_model(tmp_path: Path) -> None:
    model, script = scripted_model(tmp_path)
    with live_server(model, "--backend", "scripted", "--script", str(script)) as server, Browser(tmp_path / "profile") as page:
        page.open(server.url + "/")
        page.wait_for("document.title.includes('tiny')")
        for number, (question, answer) in enumerate(zip(("Hi", "And?"), SAYS, strict=True), 1):
            page.click("#prompt")
            page.type(question)
            page.press("Enter")
            page.wait_for(f"{IS_DONE} === {number}")
            shown = page.value("[...document.querySelectorAll('.assistant .text')].at(-1).innerText")
            assert shown == answer.replace("**", "")
            pace = page.value("[...document.querySelectorAll('.pace')].at(-1).innerText")
            assert "tokens · first after " in pace
            assert "tok/s" in pace
        assert "owned" not in page.value("document.title")
        assert page.problems == []
