"""`paceline inspect MODEL`: what a model file holds and how it would be run, without loading its weights.

The one idea: everything is read from the header; `--kernels` adds the choice of native target, `--time-model` what was
learned of its speed, `--program` the program that the native core would run.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paceline.cli.model import find_model
from paceline.cli.models import size_words

if TYPE_CHECKING:
    from paceline.backends.base import KvDtype
    from paceline.formats.checkpoint import Checkpoint
    from paceline.models.spec import LayerSpec, ModelSpec

Facts = Iterator[tuple[str, object]]


def main(arguments: Sequence[str]) -> int:
    """Print the facts. Errors: NotFoundError, ModelError, RequestError."""
    parser = argparse.ArgumentParser(prog="paceline inspect", description="Say what a model file holds.")
    parser.add_argument("model", metavar="MODEL", help="catalog name, path or hub id")
    parser.add_argument("--kernels", action="store_true", help="say which native kernels this machine would use, and why")
    parser.add_argument("--program", action="store_true", help="print the native program of the model, and nothing else")
    parser.add_argument("--time-model", action="store_true", help="say what was learned of how long this model's steps take here")
    parser.add_argument("--threads", type=int, help="with --time-model: the worker threads that ran (default: the physical cores)")
    parser.add_argument("--kv-cache-dtype", choices=("int16", "int8"), default="int16", help="with --time-model: how keys were stored")
    options = parser.parse_args(arguments)

    from paceline.formats.open import open_checkpoint

    checkpoint = open_checkpoint(find_model(options.model))
    if options.program:
        print(program_text(checkpoint))
        return 0
    for name, fact in facts(checkpoint):
        print(f"{name:<10} {fact}")
    if options.kernels:
        print_kernels()
    if options.time_model:
        print_time_model(checkpoint, options.threads, options.kv_cache_dtype)
    return 0


def facts(checkpoint: Checkpoint) -> Facts:
    """Name and fact, a line each."""
    from paceline.models.load import read_spec

    yield "file", checkpoint.path
    spec = read_spec(checkpoint)
    yield from _spec_facts(spec)
    yield from _tensor_facts(checkpoint)
    yield from _text_facts(checkpoint)


def _spec_facts(spec: ModelSpec) -> Facts:
    yield "family", spec.family
    yield "vocabulary", f"{spec.vocab_size} tokens, {'tied' if spec.tied_head else 'own'} head"
    yield "width", spec.width
    yield "context", spec.max_positions
    for words, count in Counter(_layer_words(layer) for layer in spec.layers).items():
        yield "layers", f"{count} x {words}"


def _layer_words(layer: LayerSpec) -> str:
    mixer = layer.mixer
    window = "full attention" if mixer.window is None else f"attention over {mixer.window}"
    heads = f"{mixer.num_heads} heads of {mixer.head_dim} ({mixer.num_kv_heads} kv)"
    return f"{window}, {heads}, feed-forward {layer.feed_forward.width} ({layer.feed_forward.activation.value})"


def _tensor_facts(checkpoint: Checkpoint) -> Facts:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    num_weights = 0
    for name in checkpoint.tensor_names:
        tensor = checkpoint.tensor(name)
        sizes[tensor.type.name] += tensor.data.nbytes
        counts[tensor.type.name] += 1
        num_weights += _product(tensor.shape)
    yield "weights", f"{num_weights / 1e6:.1f} million in {sum(counts.values())} tensors, {size_words(sum(sizes.values()))}"
    for kind, size in sizes.most_common():
        yield "tensors", f"{counts[kind]:>4} of {kind:<5} {size_words(size)}"


def _text_facts(checkpoint: Checkpoint) -> Facts:
    from paceline.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(checkpoint)
    ends = ", ".join(repr(tokenizer.token_text(token_id)) for token_id in tokenizer.eos_ids)
    yield "tokenizer", f"{tokenizer.vocabulary.scheme}, {tokenizer.vocab_size} tokens, ends with {ends or 'nothing'}"
    template = tokenizer.chat_template
    yield "template", f"{len(template)} characters" if template else "none"


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for dimension in shape:
        size *= dimension
    return size


def print_kernels() -> None:
    """Print every native target of this build with the reason for or against it. Errors: RequestError."""
    from paceline.backends.native.targets import choose_target, explain_targets

    chosen = choose_target()
    for target in explain_targets():
        mark = "*" if target.name == chosen.name else " "
        print(f"kernels   {mark}{target.name:<12} {target.reason}")


def print_time_model(checkpoint: Checkpoint, threads: int | None, kv_dtype: KvDtype) -> None:
    """Print what earlier runs of the native core learned. Errors: RequestError."""
    from pathlib import Path

    from paceline.backends.native.backend import native_numerics
    from paceline.backends.native.targets import choose_target
    from paceline.cli.time_model import time_model_lines
    from paceline.models.load import load_model
    from paceline.planner.machine import cpu_name, read_machine
    from paceline.planner.time_store import load_time_model, time_model_path

    numerics = native_numerics(choose_target().name, kv_dtype)
    path = time_model_path(load_model(checkpoint).digest, numerics, threads or read_machine().num_cores, cpu_name(Path("/")))
    for line in time_model_lines(load_time_model(path)):
        print(line)


def program_text(checkpoint: Checkpoint) -> str:
    """The native program of the model as text. Errors: ModelError."""
    from paceline.backends.native.recorder import record
    from paceline.models.load import load_model

    model = load_model(checkpoint)
    return record(model.spec, model.weights).render()
