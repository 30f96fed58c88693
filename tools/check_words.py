"""Check that no committed file names a place on somebody's machine or leaves a promise instead of work.

The one idea: whatever is true on one machine only, or true only later, does not belong in the tree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from tools.tree import Finding, Source, project_files, report

SUFFIXES = (".py", ".h", ".cpp", ".js", ".css", ".html", ".md", ".toml", ".txt", ".json", ".sh", "Makefile", ".ci/run", "CMakeLists.txt")

REFUSED = (
    (re.compile(r"(?<![\w.~])/(?:home|root|Users|work|tmp)/\w"), "a path of one machine"),
    (re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"), "a promise: do it, or leave it out"),
)


def check(sources: Iterable[Source]) -> list[Finding]:
    """All lines that hold a refused word."""
    return [
        Finding(source.path, number, f"`{found[0]}` is {why}")
        for source in sources
        for number, line in enumerate(source.lines, 1)
        for pattern, why in REFUSED
        if (found := pattern.search(line))
    ]


if __name__ == "__main__":
    sys.exit(report("words", check(project_files(SUFFIXES))))
