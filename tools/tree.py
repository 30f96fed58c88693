"""The project's files as the checkers see them, and how a checker reports.

The one idea: a checker is a function from files to findings; this module brings the files and prints the findings.
It deliberately knows no rule.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, and what is expected there."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Source:
    """A text file of the project. `path` is relative to the root, with forward slashes."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The text's lines, without their ends."""
        return self.text.splitlines()

    def parse(self) -> ast.Module:
        """The syntax tree of a Python file. Errors: SyntaxError."""
        return ast.parse(self.text, filename=self.path)


def project_files(suffixes: Iterable[str], root: Path = ROOT) -> Iterator[Source]:
    """Every file that git tracks or would add, with one of the suffixes, in order of path."""
    wanted = tuple(suffixes)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    for path in sorted(set(listed.split("\0"))):
        if path.endswith(wanted) and (root / path).is_file():
            yield Source(path, (root / path).read_text(encoding="utf-8"))


def report(name: str, findings: Iterable[Finding]) -> int:
    """Print the findings on stderr and return the exit status: 0 when there are none."""
    found = list(findings)
    for finding in found:
        print(finding, file=sys.stderr)
    print(f"{name}: {'ok' if not found else f'{len(found)} to mend'}")
    return 1 if found else 0
