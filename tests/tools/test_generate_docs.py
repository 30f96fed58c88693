"""The reference is made from the parsers and fields that the program itself uses."""

from __future__ import annotations

from dataclasses import fields

from paceline.cli.main import COMMANDS
from paceline.config import EngineConfig
from tools.generate_docs import command_line, configuration, parser_of


def test_parser_is_taken_without_running_the_command() -> None:
    assert parser_of("paceline.cli.serve").prog == "paceline serve"


def test_every_command_and_nested_command_has_a_section() -> None:
    text = command_line()
    assert all(f"\n## paceline {name}\n" in text for name in COMMANDS)
    assert "\n### paceline bench engine\n" in text
    assert "`--prompt-tokens N`" in text


def test_hidden_flags_stay_hidden() -> None:
    assert "--trust-remote-code" not in command_line()


def test_every_field_has_a_row_with_its_limits() -> None:
    text = configuration()
    assert all(f"| `{field.name}` |" in text for field in fields(EngineConfig))
    assert "| `threads` | *auto* | 1 … 256 |" in text
