"""`paceline list`: the models that are on this machine, then those of the catalog that are not.

The one idea: one line a model, in columns, for eyes and for `cut`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

UNITS = ("B", "kB", "MB", "GB", "TB")


def main(arguments: Sequence[str]) -> int:
    """Print the two lists."""
    argparse.ArgumentParser(prog="paceline list", description="List the models on this machine, and the catalog.").parse_args(arguments)
    from paceline.formats.catalog import CATALOG
    from paceline.formats.pull import list_models

    models = list_models()
    here = {model.name for model in models}
    rows = [(model.name, size_words(model.size_bytes), "here", str(model.path)) for model in models]
    rows += [(entry.name, size_words(entry.size_bytes), "catalog", entry.about) for entry in CATALOG.values() if entry.name not in here]
    width = max(len(row[0]) for row in rows)
    for name, size, place, note in rows:
        print(f"{name:<{width}}  {size:>8}  {place:<7}  {note}")
    return 0


def size_words(num_bytes: float) -> str:
    """A size for people: three digits and a unit."""
    for unit in UNITS[:-1]:
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} {UNITS[-1]}"
