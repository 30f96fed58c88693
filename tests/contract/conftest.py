"""Servers that the contract tests share: the real small model, and scripted answers of a tiny one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.formats.open import open_checkpoint
from paceline.text.tokenizer import Tokenizer, load_tokenizer
from tests.contract.live_server import LiveServer, live_server
from tests.generators.tiny_models import tiny_gguf

SCRIPTS = {
    "emoji": "héllo 👩‍👧‍👦 日本 🇫🇷!",
    "stop": "one two STOP three",
    "held": "one STO two ST three S",
    "mark": "a <|im_start|> b",
    "empty": "",
}
"""What the scripted model says to a prompt that contains `[name]`."""


@dataclass(frozen=True)
class ScriptedServer:
    """A server whose answers are known, and the tokenizer of its model."""

    live: LiveServer
    tokenizer: Tokenizer


@pytest.fixture(scope="package")
def smollm2(smollm2_path: Path) -> Iterator[LiveServer]:
    """The default model, served."""
    with live_server(smollm2_path) as server:
        yield server


@pytest.fixture(scope="package")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """A tiny model that says `SCRIPTS`, a byte a token."""
    folder = tmp_path_factory.mktemp("scripted")
    path = tiny_gguf(folder / "tiny.gguf", "llama")
    tokenizer = load_tokenizer(open_checkpoint(path))

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=True)

    script = [{"prompt_contains_ids": ids(f"[{name}]"), "tokens": ids(text)} for name, text in SCRIPTS.items()]
    (folder / "script.json").write_text(json.dumps(script))
    with live_server(path, "--backend", "scripted", "--script", str(folder / "script.json")) as server:
        yield ScriptedServer(server, tokenizer)
