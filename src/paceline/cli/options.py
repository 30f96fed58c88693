"""The sampling flags that `run` and `chat` share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.sampling.params import SamplingParams

SAMPLING_FLAGS: tuple[tuple[str, type[int] | type[float], str], ...] = (
    ("temperature", float, "randomness; 0 takes the likeliest token [1]"),
    ("top_p", float, "sample from the likeliest tokens that hold this share [1]"),
    ("top_k", int, "sample from so many likeliest tokens [all]"),
    ("min_p", float, "sample from tokens at least so likely, relative to the likeliest [0]"),
    ("repetition_penalty", float, "more than 1 discourages what was said [1]"),
    ("max_tokens", int, "longest answer in tokens [to the end of the context]"),
)


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add them; what is not given keeps the default of `SamplingParams`. `--seed` is the engine's."""
    group = parser.add_argument_group("sampling options")
    for name, kind, text in SAMPLING_FLAGS:
        group.add_argument("--" + name.replace("_", "-"), type=kind, default=None, metavar="N" if kind is int else "X", help=text)


def params_from(options: argparse.Namespace) -> SamplingParams:
    """The validated sampling. Errors: RequestError naming the field."""
    from paceline.sampling.params import SamplingParams

    values = {name: getattr(options, name) for name, _, _ in SAMPLING_FLAGS}
    return SamplingParams(**{name: value for name, value in values.items() if value is not None})
