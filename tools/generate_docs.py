"""Write docs/reference from the code: the command line from its parsers, the configuration from its dataclass fields.

The one idea: nothing is described twice. Each command's `main` is called and stopped at the moment it would read its arguments;
the parser it built by then says everything. `check_docs.py` compares the committed files with what this writes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any
from unittest import mock

from paceline import config
from paceline.cli.main import COMMANDS
from tools.tree import ROOT

REFERENCE = ROOT / "docs/reference"
HEADER = "<!-- Written by `make docs`; do not edit. -->\n\n"
CONFIGS = (config.EngineConfig, config.ServeConfig)


class _Built(Exception):
    """Carries the parser that a command was about to use."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser that a command's `main` builds. Errors: AssertionError when it parses nothing."""

    def stop(parser: argparse.ArgumentParser, *_arguments: object, **_options: object) -> None:
        raise _Built(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            importlib.import_module(module).main([])
        except _Built as built:
            return built.parser
    raise AssertionError(f"`{module}.main` parses no arguments")


def command_line() -> str:
    """docs/reference/cli.md."""
    parts = [
        HEADER + "# Command line\n\n`paceline COMMAND [OPTIONS]`. Exit codes: 0 done · 1 failed · 2 asked wrongly · 130 interrupted.\n"
    ]
    for name, (module, line) in COMMANDS.items():
        parts += _parser_section(f"paceline {name}", f"{line[0].upper()}{line[1:]}.", parser_of(module), level=2)
    return "\n".join(parts)


def _parser_section(title: str, about: str, parser: argparse.ArgumentParser, *, level: int) -> Iterator[str]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action not in nested and action.dest != "help"]
    yield f"{'#' * level} {title}\n\n{about}\n"
    if shown:
        rows = [f"| {_spelling(action)} | {_cell(action.help or '')} |" for action in shown]
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])
    for action in nested:
        for name, inner in action.choices.items():
            yield from _parser_section(f"{title} {name}", inner.description or "", inner, level=level + 1)


def _spelling(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if isinstance(action, argparse.BooleanOptionalAction):
        value = ""
    words = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{words}`" + (" (optional)" if action.nargs in ("?", "*") else "")
    many = " …" if action.nargs == "+" else ""
    return ", ".join(f"`{flag}{' ' + words if words else ''}{many}`" for flag in action.option_strings)


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|")


def configuration() -> str:
    """docs/reference/config.md."""
    intro = (
        "# Configuration\n\nEach field is a flag (`max_num_seqs` is `--max-num-seqs`), a key of the file given with `--config`,\n"
        "and, for the engine, a keyword of `LLM(...)`. A default of *auto* is resolved at start; the log says to what, and why.\n"
    )
    return HEADER + "\n".join([intro, *(_config_section(owner) for owner in CONFIGS)])


def _config_section(owner: type[Any]) -> str:
    lines = [f"## {owner.__name__}\n", f"{owner.__doc__}\n", "| field | default | limits | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_field_row(field) for field in fields(owner)), ""])


def _field_row(field: Field[Any]) -> str:
    assert field.default is not MISSING, f"`{field.name}` has no default"
    is_auto = field.default is None and "auto" in field.metadata["help"]
    default = "*auto*" if is_auto else "none" if field.default in (None, ()) else f"`{field.default}`"
    meta = field.metadata
    low, high = (meta.get("low"), meta.get("high"))
    limits = ", ".join(f"`{choice}`" for choice in meta.get("choices", ()))
    if low is not None or high is not None:
        limits = f"{'' if low is None else low} … {'' if high is None else high}".strip()
    aliases = "".join(f"; also `{alias}`" for alias in meta.get("aliases", ()))
    return f"| `{field.name}` | {default} | {limits} | {_cell(str(meta.get('help', '')))}{aliases} |"


def reference() -> dict[str, str]:
    """The text of each generated file, by its name in docs/reference."""
    return {"cli.md": command_line(), "config.md": configuration()}


def main() -> int:
    """Write the files."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in reference().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
