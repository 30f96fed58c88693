"""`paceline run MODEL PROMPT`: prints the model's answer to a prompt on stdout, and nothing else there.

The one idea: a model with a chat template is asked as in a chat; `--raw` continues the bare text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from paceline.cli.flags import add_config_flags, config_from
from paceline.cli.model import find_model
from paceline.cli.options import add_sampling_flags, params_from
from paceline.config import EngineConfig


def main(arguments: Sequence[str]) -> int:
    """Print one answer. Errors: RequestError, ModelError, EngineError."""
    parser = argparse.ArgumentParser(prog="paceline run", description="Print a model's answer to a prompt.")
    parser.add_argument("model", metavar="MODEL", help="catalog name, path or hub id")
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt; `-` reads it from stdin")
    parser.add_argument("--raw", action="store_true", help="continue the bare text, without the chat template")
    add_sampling_flags(parser)
    add_config_flags(parser, EngineConfig)
    options = parser.parse_args(arguments)
    params = params_from(options)
    config = config_from(options, EngineConfig)
    prompt = options.prompt if options.prompt != "-" else sys.stdin.read() if sys.stdin is not None else ""
    path = find_model(options.model)

    from paceline.cli.local import LocalModel

    model = LocalModel(path, config)
    try:
        prompt_ids = model.text_ids(prompt) if options.raw or not model.is_chat_model else model.chat_ids([("user", prompt)])
        for piece in model.answer(prompt_ids, params):
            sys.stdout.write(piece)
            sys.stdout.flush()
        print()
    finally:
        model.close()
    return 130 if model.was_interrupted else 0
