"""Print the requirements of some extras of pyproject.toml, one a line, for `pip install --requirement /dev/stdin`.

The one idea: what the tests need is installed apart from the package, so that a new requirement does not rebuild the native core.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: str, extras: list[str]) -> list[str]:
    """The requirements of the named extras. Errors: KeyError for an extra that does not exist."""
    known = tomllib.loads(pyproject)["project"]["optional-dependencies"]
    return [requirement for extra in extras for requirement in known[extra]]


if __name__ == "__main__":
    text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    print("\n".join(requirements(text, sys.argv[1:])))
