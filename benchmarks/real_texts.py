"""Real texts that exist wherever Python and this repository do: prose, documentation, source code, a licence.

The one idea: a quality figure needs text that models know how to continue, and no download. The prose was written for this
folder; the rest comes with Python's standard library, so its wording follows the Python version.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "texts"
LICENCE = Path(__file__).parent.parent / "LICENSE"
TOPICS = ("execmodel", "import", "formatstrings")
"""Chapters of Python's language reference, as `help()` shows them."""
MODULES = ("heapq", "textwrap", "statistics")


@dataclass(frozen=True, slots=True)
class Text:
    """A named text; every one is longer than 512 tokens of any vocabulary that was tried."""

    name: str
    content: str


def real_texts() -> Iterator[Text]:
    """All texts, in a fixed order."""
    from pydoc_data.topics import topics

    for path in sorted(FOLDER.glob("*.txt")):
        yield Text(path.stem, path.read_text(encoding="utf-8"))
    for topic in TOPICS:
        yield Text(f"python help: {topic}", topics[topic])
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        yield Text(f"{module}.py", Path(spec.origin).read_text(encoding="utf-8"))
    yield Text("licence", LICENCE.read_text(encoding="utf-8"))
