"""Command-line flags from the fields of config dataclasses.

The one idea: a flag is declared once, as a field with its help, limits and choices in `config.py`. What was not given is not
passed on, so a field's own default is the only default; a TOML file of the same names stands between the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

from paceline.config import is_of_kind
from paceline.errors import RequestError

C = TypeVar("C")
PARSERS: dict[str, Callable[[str], object]] = {"int": int, "float": float, "str": str}


def add_config_flags(parser: argparse.ArgumentParser, config_class: type[Any], *, without: tuple[str, ...] = ()) -> None:
    """Add a flag per field: `--max-num-seqs` for `max_num_seqs`; `--name/--no-name` for a bool; repeated values for a tuple."""
    group = parser.add_argument_group(_title(config_class))
    for field in fields(config_class):
        if field.name not in without:
            _add_flag(group, field)


def _add_flag(group: argparse._ArgumentGroup, field: Field[Any]) -> None:
    names = [flag_of(name) for name in (field.name, *field.metadata.get("aliases", ()))]
    words = str(field.type).removesuffix(" | None")
    options: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": _help(field)}
    if words == "bool":
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **options)
        return
    if words.startswith("tuple"):
        options["nargs"] = "+"
        words = "str"
    if field.metadata.get("choices"):
        options["choices"] = field.metadata["choices"]
    else:
        options["metavar"] = {"int": "N", "float": "X", "str": "TEXT"}[words]
    group.add_argument(*names, type=PARSERS[words], **options)


def config_from(arguments: argparse.Namespace, config_class: type[C], file_values: Mapping[str, object] | None = None) -> C:
    """The config that flags, then a file's values, then the fields' defaults give. Errors: RequestError naming the field."""
    names = {field.name for field in fields(config_class)}  # type: ignore[arg-type]  # any dataclass
    given = {name: value for name, value in vars(arguments).items() if name in names}
    filed = {name: value for name, value in (file_values or {}).items() if name in names}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in (filed | given).items()}
    return config_class(**values)


def read_config_file(path: str | None, *config_classes: type[Any]) -> dict[str, object]:
    """The values of a TOML file, names with dashes or underscores. Errors: RequestError when it cannot be read or names no field."""
    if path is None:
        return {}
    import tomllib

    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"`{path}` cannot be read as TOML: {error}.", param="config") from None
    known: dict[str, Field[Any]] = {}
    for field in (field for config_class in config_classes for field in fields(config_class)):
        known |= dict.fromkeys((field.name, *field.metadata.get("aliases", ())), field)
    named = {name.replace("-", "_"): value for name, value in values.items()}
    for name, value in named.items():
        if name not in known:
            raise RequestError(f"`{path}` sets `{name}`, which is no option.", param="config")
        if not is_of_kind(value, str(known[name].type)):
            raise RequestError(f"`{path}` sets `{name}` to `{value}`; expected {known[name].type}.", param="config")
    return {known[name].name: value for name, value in named.items()}


def flag_of(name: str) -> str:
    """A field's flag."""
    return "--" + name.replace("_", "-")


def _title(config_class: type[Any]) -> str:
    return config_class.__name__.removesuffix("Config").lower() + " options"


def _help(field: Field[Any]) -> str:
    text = str(field.metadata.get("help", ""))
    shown = "" if field.default in (None, (), MISSING) else f" [{field.default}]"
    return (text + shown).replace("%", "%%")
