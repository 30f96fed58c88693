"""Flags that users of other servers type: accepted where they ask for what is so anyway, refused where they do not.

The one idea: nothing is dropped in silence. An accepted flag prints a note, a refused one says that it is not built yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from paceline.errors import RequestError


@dataclass(frozen=True, slots=True)
class ForeignFlag:
    """A flag with a value: which values are as good as so already, and the note that says why."""

    flag: str
    is_so: Callable[[str], bool]
    note: str


def _is_one(value: str) -> bool:
    return value == "1"


FOREIGN_FLAGS = (
    ForeignFlag("--tensor-parallel-size", _is_one, "one device serves the model"),
    ForeignFlag("--pipeline-parallel-size", _is_one, "one device serves the model"),
    ForeignFlag("--data-parallel-size", _is_one, "one engine serves the model"),
    ForeignFlag("--dtype", lambda value: value in ("auto", "float16", "bfloat16", "half"), "weights keep the types of their file"),
    ForeignFlag("--quantization", lambda value: value == "gguf", "the file says how its weights are quantised"),
    ForeignFlag("--speculative-model", lambda value: False, ""),
    ForeignFlag("--num-speculative-tokens", lambda value: value == "0", "nothing is drafted"),
    ForeignFlag("--speculative-config", lambda value: False, ""),
)
SWITCHES = {
    "--trust-remote-code": "no code is ever taken from a model's folder",
    "--enable-chunked-prefill": "prompts are always computed in slices",
    "--enforce-eager": "there is nothing to capture",
    "--disable-log-requests": "requests are never logged",
}
UNBUILT_SWITCHES = ("--enable-speculative-decoding", "--enable-lora", "--enable-auto-tool-choice")


def add_foreign_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, out of the help's sight."""
    for foreign in FOREIGN_FLAGS:
        parser.add_argument(foreign.flag, default=None, help=argparse.SUPPRESS)
    for switch in (*SWITCHES, *UNBUILT_SWITCHES):
        parser.add_argument(switch, action="store_true", help=argparse.SUPPRESS)


def foreign_notes(arguments: argparse.Namespace) -> list[str]:
    """A note for every accepted flag that was given. Errors: RequestError for one that asks for what is not built."""
    notes = []
    for foreign in FOREIGN_FLAGS:
        value = getattr(arguments, _name(foreign.flag))
        if value is None:
            continue
        if not foreign.is_so(value):
            raise RequestError(f"`{foreign.flag} {value}` is not supported yet.", param=foreign.flag)
        notes.append(f"`{foreign.flag} {value}`: {foreign.note}")
    for switch in UNBUILT_SWITCHES:
        if getattr(arguments, _name(switch)):
            raise RequestError(f"`{switch}` is not supported yet.", param=switch)
    return notes + [f"`{switch}`: {note}" for switch, note in SWITCHES.items() if getattr(arguments, _name(switch))]


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
