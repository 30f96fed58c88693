"""`paceline bench engine | serve | perplexity | compare`: reads the flags, runs the benchmark, writes its report.

The one idea: a table on a terminal, JSON with `--json`, and always the machine, so that a figure can be repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.bench.machine import machine_record
from paceline.bench.report import Report, write_report
from paceline.cli.flags import add_config_flags, config_from
from paceline.config import EngineConfig
from paceline.errors import NotFoundError, RequestError

if TYPE_CHECKING:
    import msgspec

OWN_FIELDS = ("max_num_seqs", "enable_prefix_caching", "max_waiting", "seed", "script")
"""Fields of the engine's config that a benchmark sets itself."""


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark; 1 when no request of a load went through. Errors: RequestError, ModelError, EngineError."""
    options = parser().parse_args(list(arguments))
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def parser() -> argparse.ArgumentParser:
    """The flags of every benchmark."""
    root = argparse.ArgumentParser(prog="paceline bench", description="Measure the engine, a server, or a model's quality.")
    kinds = root.add_subparsers(required=True, metavar="KIND")
    for name, (text, add_flags) in KINDS.items():
        add_flags(kinds.add_parser(name, help=text, description=text[0].upper() + text[1:] + "."))
    return root


def _add_engine(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("model", metavar="MODEL", help="catalog name, path or hub id")
    flags.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="tokens of each prompt [512]")
    flags.add_argument("--gen-tokens", type=int, default=128, metavar="N", help="new tokens of each sequence [128]")
    flags.add_argument("--batch", type=_numbers, default=(1, 8, 32), metavar="N,N", help="sequences at once, a row each [1,8,32]")
    flags.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of which a row is the median [3]")
    _add_shared(flags, run_engine)
    add_config_flags(flags, EngineConfig, without=OWN_FIELDS)


def _add_serve(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("url", metavar="URL", help="the server, such as http://127.0.0.1:8000")
    flags.add_argument("--concurrency", type=_numbers, default=(1, 16), metavar="N,N", help="chats at once, a row each [1,16]")
    flags.add_argument("--requests", type=int, metavar="N", help="requests per row [4 for each chat at once]")
    flags.add_argument("--prompt-tokens", type=int, default=170, metavar="N", help="tokens of each prompt, template included [170]")
    flags.add_argument("--gen-tokens", type=int, default=128, metavar="N", help="new tokens of each answer [128]")
    flags.add_argument("--model", metavar="NAME", help="the model to ask for [the first that the server names]")
    flags.add_argument("--api-key", metavar="KEY", help="sent as `Authorization: Bearer KEY`")
    flags.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the prompts [0]")
    _add_shared(flags, run_serve)


def _add_perplexity(flags: argparse.ArgumentParser) -> None:
    flags.add_argument("model", metavar="MODEL", help="catalog name, path or hub id")
    flags.add_argument("file", metavar="FILE", type=Path, help="a text in UTF-8")
    flags.add_argument("--window", type=int, default=512, metavar="N", help="tokens that are computed together [512]")
    flags.add_argument("--max-windows", type=int, metavar="N", help="score only so many windows from the start")
    _add_shared(flags, run_perplexity)
    add_config_flags(flags, EngineConfig, without=(*OWN_FIELDS, "max_model_len", "max_num_batched_tokens", "num_blocks"))


def _add_compare(flags: argparse.ArgumentParser) -> None:
    from paceline.bench.compare.command import add_flags, run_compare

    add_flags(flags)
    _add_shared(flags, run_compare)


KINDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "engine": ("measure prompt and decode speed of the engine, with no server around it", _add_engine),
    "serve": ("drive any OpenAI server with streamed chats; throughput and latencies", _add_serve),
    "perplexity": ("score a text with a model: mean negative log-likelihood in windows", _add_perplexity),
    "compare": ("measure this engine and another one in turns, on the same file, threads and workload", _add_compare),
}


def _add_shared(flags: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    flags.add_argument("--json", action="store_true", dest="as_json", help="write one JSON object to stdout")
    flags.set_defaults(run=run)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def run_engine(options: argparse.Namespace) -> int:
    """`paceline bench engine`."""
    from paceline.bench.engine import EngineLoad, run_engine_load
    from paceline.cli.model import find_model
    from paceline.engine.build import build_engine

    load = EngineLoad(options.prompt_tokens, options.gen_tokens, options.batch, options.repeat)
    options.max_num_seqs, options.max_waiting, options.enable_prefix_caching = max(load.batches), max(load.batches), False
    engine = build_engine(config_from(options, EngineConfig), find_model(options.model))
    try:
        rows = run_engine_load(engine, load)
        info = engine.info
    finally:
        engine.close()
    settings = {
        "model": options.model,
        "backend": info.backend,
        "threads": info.threads,
        "prompt_tokens": load.prompt_tokens,
        "gen_tokens": load.gen_tokens,
        "repeat": load.repeat,
        "max_num_batched_tokens": info.max_num_batched_tokens,
        "load_s": round(info.load_s, 3),
    }
    return _finish("engine", options, settings, rows)


def run_serve(options: argparse.Namespace) -> int:
    """`paceline bench serve`."""
    from paceline.bench.http_stream import Endpoint
    from paceline.bench.serve import Load, run_load, served_model

    endpoint = Endpoint.parse(options.url, options.api_key)
    model = options.model or asyncio.run(served_model(endpoint))
    load = Load(endpoint, model, options.prompt_tokens, options.gen_tokens, options.seed)
    rows = asyncio.run(run_load(load, options.concurrency, lambda level: options.requests or 4 * level))
    settings = {"url": options.url, "model": model, "prompt_tokens": load.prompt_tokens, "gen_tokens": load.gen_tokens}
    _finish("serve", options, settings, rows)
    return 1 if all(row.errors == row.requests for row in rows) else 0


def run_perplexity(options: argparse.Namespace) -> int:
    """`paceline bench perplexity`."""
    from paceline.bench.perplexity import score_model
    from paceline.cli.model import find_model

    text = _read_text(options.file)
    row = score_model(find_model(options.model), text, config_from(options, EngineConfig), options.window, options.max_windows)
    settings = {"model": options.model, "file": options.file.name, "window": options.window, "max_windows": options.max_windows}
    return _finish("perplexity", options, settings, [row])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"`{path}` cannot be read: {error.strerror}.", param="file") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"`{path}` is no UTF-8 text: byte {error.start} is wrong.", param="file") from None


def _finish(benchmark: str, options: argparse.Namespace, settings: dict[str, object], rows: Sequence[msgspec.Struct]) -> int:
    record = machine_record(datetime.datetime.now(datetime.UTC))
    write_report(Report(benchmark, record, settings, rows), sys.stdout, as_json=options.as_json)
    return 0
