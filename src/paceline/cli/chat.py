"""`paceline chat [MODEL]`: a chat in the terminal, with history; the engine runs in this process.

The one idea: stdout carries the answers alone, so a piped chat is a script; prompts and notes go to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paceline.cli.flags import add_config_flags, config_from
from paceline.cli.model import DEFAULT_MODEL, find_model
from paceline.cli.options import add_sampling_flags, params_from
from paceline.config import EngineConfig
from paceline.errors import ContextLengthError

if TYPE_CHECKING:
    from paceline.cli.local import LocalModel
    from paceline.sampling.params import SamplingParams

PROMPT = "> "
COMMANDS = "/reset forgets the chat · /exit or Ctrl-D ends it · Ctrl-C stops an answer"


def main(arguments: Sequence[str]) -> int:
    """Chat until `/exit` or the end of stdin. Errors: RequestError, ModelError, EngineError."""
    options = _parser().parse_args(arguments)
    params = params_from(options)
    config = config_from(options, EngineConfig)
    path = find_model(options.model)

    from paceline.cli.local import LocalModel

    model = LocalModel(path, config)
    try:
        converse(model, [("system", options.system)] if options.system else [], params)
    finally:
        model.close()
    return 0


def converse(model: LocalModel, opening: list[tuple[str, str]], params: SamplingParams) -> None:
    """Answer every line typed, with all that was said before. Errors: EngineError."""
    history = list(opening)
    for line in _lines():
        if line == "/reset":
            history = list(opening)
            continue
        history.append(("user", line))
        try:
            pieces = [_say(piece) for piece in model.answer(model.chat_ids(history), params)]
        except ContextLengthError as error:
            print(f"{error}\n/reset makes room.", file=sys.stderr)
            history.pop()
            continue
        print(flush=True)
        history.append(("assistant", "".join(pieces)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline chat", description="Chat with a model in the terminal.", epilog=COMMANDS)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="MODEL", help=f"catalog name, path or hub id [{DEFAULT_MODEL}]")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    add_sampling_flags(parser)
    add_config_flags(parser, EngineConfig)
    return parser


def _say(piece: str) -> str:
    sys.stdout.write(piece)
    sys.stdout.flush()
    return piece


def _lines() -> Iterator[str]:
    """What the person types, without empty lines, until `/exit` or the end."""
    if sys.stdin is None:  # closed by whoever started us
        return
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401  # its import gives `input` editing and history

        print(COMMANDS, file=sys.stderr)
    while True:
        try:
            line = input(PROMPT) if is_terminal else next(sys.stdin)
        except (EOFError, StopIteration):
            return
        line = line.strip()
        if line == "/exit":
            return
        if line:
            yield line
