"""Check that docs/reference is what `make docs` would write, that links between documents lead somewhere, and README's length."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.tree import ROOT, Finding, Source, project_files, report

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
MAX_README_LINES = 150


def stale_findings(generated: Mapping[str, str], folder: Path) -> Iterator[Finding]:
    """Generated files that are missing or not current."""
    for name, text in generated.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield Finding(f"docs/reference/{name}", 1, "is not current; run `make docs`")


def link_findings(sources: Iterable[Source], root: Path) -> Iterator[Finding]:
    """Relative links to files that do not exist."""
    for source in sources:
        folder = (root / source.path).parent
        links = [(number, target) for number, line in enumerate(source.lines, 1) for target in LINK.findall(line)]
        yield from (
            Finding(source.path, number, f"`{target}` does not exist") for number, target in links if not (folder / target).exists()
        )


def length_findings(sources: Iterable[Source]) -> Iterator[Finding]:
    """A README that nobody would read to its end."""
    for source in sources:
        if source.path == "README.md" and len(source.lines) > MAX_README_LINES:
            yield Finding(source.path, 1, f"{len(source.lines)} lines; at most {MAX_README_LINES}")


if __name__ == "__main__":
    from tools.generate_docs import REFERENCE, reference

    documents = list(project_files([".md"]))
    findings = [*stale_findings(reference(), REFERENCE), *link_findings(documents, ROOT), *length_findings(documents)]
    sys.exit(report("docs", findings))
