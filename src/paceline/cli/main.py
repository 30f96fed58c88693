"""The `paceline` command: finds the subcommand and runs it; turns errors into one line and an exit code.

The one idea: nothing is imported before it is known to be needed, so `paceline --help` and `paceline serve` start at once.

Exit codes: 0 done · 1 failed · 2 asked wrongly · 130 interrupted
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from paceline import __version__
from paceline.errors import PacelineError, RequestError

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("paceline.cli.serve", "serve a model over HTTP, in OpenAI's API"),
    "chat": ("paceline.cli.chat", "chat with a model in the terminal"),
    "run": ("paceline.cli.run", "print a model's continuation of a prompt"),
    "pull": ("paceline.cli.pull", "download a model"),
    "list": ("paceline.cli.models", "list the models that are here, and the catalog"),
    "inspect": ("paceline.cli.inspect", "say what a model file holds"),
    "bench": ("paceline.bench.cli", "measure the engine or a server"),
}
"""Each command's module, which has `main(arguments) -> exit code`, and its line of help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _take_any_text()
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"paceline {__version__}")
        return 0
    if words[0] not in COMMANDS:
        return _complain(f"`{words[0]}` is no command; expected one of {', '.join(COMMANDS)}.", 2)
    return _run(COMMANDS[words[0]][0], words[1:])


def help_text() -> str:
    """What `paceline --help` prints."""
    lines = [f"  {name:<8} {line}" for name, (_, line) in COMMANDS.items()]
    usage = "usage: paceline COMMAND [OPTIONS]\n\nServe and run large language models.\n\ncommands:\n"
    return usage + "\n".join(lines) + "\n\n`paceline COMMAND --help` says more; `paceline serve` serves the small default model."


def _run(module: str, words: list[str]) -> int:
    try:
        code = int(importlib.import_module(module).main(words))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except RequestError as error:
        return _complain(str(error), 2)
    except PacelineError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        return _complain(f"{error.strerror or error}{f': `{error.filename}`' if error.filename else ''}.", 1)


def _take_any_text() -> None:
    """Let no locale end a command half way: what a terminal cannot show is shown as `?`, what is no text is said by who reads it."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _drop_output() -> None:
    """Nobody takes what is written: give the exit's flush somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    print(f"paceline: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
