"""`paceline serve [MODEL]`: starts the engine's child, then the HTTP server.

The one idea: the child is started before anything heavy is imported here, so the model loads while the server imports itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.cli.compatibility import add_foreign_flags, foreign_notes
from paceline.cli.flags import add_config_flags, config_from, read_config_file
from paceline.cli.model import DEFAULT_MODEL, find_model
from paceline.config import EngineConfig, ServeConfig
from paceline.errors import RequestError
from paceline.log import log

if TYPE_CHECKING:
    from paceline.serve.state import ServerState


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal. Errors: RequestError, ModelError, EngineError."""
    options = _parser().parse_args(arguments)
    if options.model and options.model_flag and options.model != options.model_flag:
        raise RequestError(f"Two models were named: `{options.model}` and `{options.model_flag}`.", param="model")
    filed = read_config_file(options.config, EngineConfig, ServeConfig)
    engine_config = config_from(options, EngineConfig, filed)
    serve_config = config_from(options, ServeConfig, filed)
    for note in foreign_notes(options):
        log("info", "serve.note", text=note)
    asked = next((name for name in (options.model, options.model_flag) if name is not None), DEFAULT_MODEL)
    path = find_model(asked)

    from paceline.engine.launch import launch_engine

    child = launch_engine(engine_config, path)

    import asyncio

    from paceline.engine.client import ChildClient
    from paceline.serve.server import Service, serve

    async def run() -> None:
        client = ChildClient(child, max_open=engine_config.max_waiting + engine_config.max_num_seqs)
        await serve(Service(asked, path, engine_config, serve_config), client, say_ready)

    asyncio.run(run())
    return 0


def say_ready(address: str, state: ServerState) -> None:
    """Tell the person at the terminal what is served and what to do next."""
    info = state.client.info
    for note in info.notes:
        log("info", "engine.auto", text=note)
    body = json.dumps({"model": state.names.primary, "messages": [{"role": "user", "content": "Hello!"}], "stream": True})
    lines = [
        f"Serving `{state.names.primary}` ({info.family}, {info.backend}, context {info.max_model_len}, loaded in {info.load_s:.2f} s)",
        f"  open  {address}/",
        f"  or    curl -N {address}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline serve", description="Serve a model over HTTP, in OpenAI's API.")
    parser.add_argument("model", nargs="?", metavar="MODEL", help=f"catalog name, path or hub id [{DEFAULT_MODEL}]")
    parser.add_argument("--model", dest="model_flag", metavar="MODEL", help="the same, as a flag")
    parser.add_argument("--config", metavar="FILE", help="a TOML file with any of these options by name")
    add_config_flags(parser, ServeConfig)
    add_config_flags(parser, EngineConfig)
    add_foreign_flags(parser)
    return parser
