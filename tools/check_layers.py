"""Check that every module imports only what stands above it in ARCHITECTURE.md's package table.

The one idea: the table is the rule. A package imports from lower levels, and on its own level only from packages listed
before it, so no cycle can form. Some libraries are at home in one place alone (`HOMES`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.tree import ROOT, Finding, Source, project_files, report

PACKAGE = "paceline"
SOURCE_FOLDER = "src/paceline/"

HOMES: dict[str, tuple[str, ...]] = {
    "paceline.backends.native": ("backends/native/", "engine/build.py", "cli/inspect.py"),
    "paceline.backends.reference": ("backends/reference", "engine/build.py"),
    "torch": ("backends/torch/",),
    "triton": ("backends/torch/",),
    "starlette": ("serve/",),
    "uvicorn": ("serve/",),
    "pydantic": ("serve/",),
    "jinja2": ("text/chat.py",),
    "sqlite3": ("jobs/store.py",),
    "transformers": (),
    "gguf": (),
    "openai": (),
}
"""Where a library, or a part of ours, may be imported, relative to the package; an empty tuple is nowhere: tests and benchmarks only."""

ENVIRONMENT = {("os", "environ"), ("os", "getenv"), ("os", "putenv")}

TABLE_ROW = re.compile(r"^(?:\d| ) +(?P<names>(?:[\w/]+(?:/|\.py)(?: +|$))+)")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, by its full dotted name."""

    module: str
    line: int


def package_order(architecture: str) -> dict[str, int]:
    """The place of each entry in the table of `## Package`, `backends.base` for `backends/base.py`: larger imports from smaller.

    Errors:  ValueError when the table is missing
    """
    section = architecture.partition("## Package")[2].partition("```")[2].partition("```")[0]
    rows = [match["names"].split() for line in section.splitlines() if (match := TABLE_ROW.match(line))]
    names = [name.removesuffix("/").removesuffix(".py").replace("/", ".") for row in rows for name in row]
    if not names:
        raise ValueError("ARCHITECTURE.md has no package table under `## Package`")
    return {name: place for place, name in enumerate(names)}


def entry_of(module: str, order: dict[str, int]) -> str | None:
    """The table's entry that holds a module of the package (its name without `paceline.`), the nearest one; None when none does."""
    while module and module not in order:
        module = module.rpartition(".")[0]
    return module or None


def imports(source: Source) -> Iterator[Import]:
    """Every module that a file imports, anywhere in it, relative imports resolved."""
    here = PurePosixPath(source.path.removeprefix("src/")).with_suffix("").parts
    for node in ast.walk(source.parse()):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(f"{module}.{alias.name}", node.lineno) for alias in node.names)


def is_within(module: str, name: str) -> bool:
    """Whether the dotted `module` is `name` or lies in it."""
    return module == name or module.startswith(name + ".")


def layer_findings(source: Source, order: dict[str, int]) -> Iterator[Finding]:
    """Imports of this file that go up, and libraries that are not at home in it."""
    inside = source.path.removeprefix(SOURCE_FOLDER)
    is_root = inside == "__init__.py"
    here = entry_of(inside.removesuffix(".py").replace("/", "."), order)
    if here is None and not is_root:
        yield Finding(source.path, 1, f"`{inside}` has no level in ARCHITECTURE.md's package table")
        return
    for found in imports(source):
        yield from (Finding(source.path, found.line, message) for message in stranger_messages(inside, found.module))
        target = entry_of(found.module.removeprefix(f"{PACKAGE}."), order) if is_within(found.module, PACKAGE) else None
        if here and target and order[target] > order[here]:
            yield Finding(source.path, found.line, f"`{here}` stands above `{target}` in the table and must not import it")
    if inside != "env.py":
        for line in environment_reads(source):
            yield Finding(source.path, line, "the environment is read in env.py alone")


def stranger_messages(inside: str, module: str) -> Iterator[str]:
    """What is wrong with importing `module` in the file `inside` the package: a library that is not at home there."""
    for library, homes in HOMES.items():
        if is_within(module, library) and not any(inside.startswith(home) for home in homes):
            yield f"`{library}` is imported only in {' or '.join(homes) or 'tests and benchmarks'}"


def environment_reads(source: Source) -> Iterator[int]:
    """Lines that reach for `os.environ` or `os.getenv`."""
    for node in ast.walk(source.parse()):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in ENVIRONMENT:
            yield node.lineno


def check(sources: Iterable[Source], architecture: str) -> list[Finding]:
    """All findings in the package's Python files, each once."""
    order = package_order(architecture)
    inside = (source for source in sources if source.path.startswith(SOURCE_FOLDER))
    return list(dict.fromkeys(finding for source in inside for finding in layer_findings(source, order)))


if __name__ == "__main__":
    sys.exit(report("layers", check(project_files([".py"]), (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))))
