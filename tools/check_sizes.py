"""Check the size budget of CONVENTIONS.md: lines of files and functions, parameters, nesting.

The one idea: a budget makes growing complexity visible at the moment it grows. What has a reason to be larger stands in
`size_allowances.toml` with that reason; an allowance that nothing needs any more is a finding too.
Lines of a function are counted without its docstring. C++ kernels have a budget per file only.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.tree import ROOT, Finding, Source, project_files, report

MAX_FILE_LINES, HARD_FILE_LINES = 400, 600
MAX_FUNCTION_LINES, HARD_FUNCTION_LINES = 40, 60
MAX_PARAMETERS = 6
MAX_NESTING = 3
SUFFIXES = (".py", ".h", ".cpp", ".js", ".css")

Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured size: `key` is what an allowance names it by, `hard` the most that an allowance may grant."""

    path: str
    line: int
    key: str
    what: str
    value: int
    limit: int
    hard: int


def measures(source: Source) -> Iterator[Measure]:
    """Every size in a file that has a budget."""
    yield Measure(source.path, 1, source.path, "lines", len(source.lines), MAX_FILE_LINES, HARD_FILE_LINES)
    if source.path.endswith(".py"):
        yield from _function_measures(source.path, source.parse(), "")


def _function_measures(path: str, parent: ast.AST, prefix: str) -> Iterator[Measure]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function):
            name = f"{prefix}{node.name}"
            key = f"{path}:{name}"
            at = (path, node.lineno, key)
            yield Measure(*at, f"lines of `{name}`", function_lines(node), MAX_FUNCTION_LINES, HARD_FUNCTION_LINES)
            yield Measure(*at, f"parameters of `{name}`", num_parameters(node), MAX_PARAMETERS, 2 * MAX_PARAMETERS)
            yield Measure(*at, f"levels of nesting in `{name}`", nesting(node), MAX_NESTING, MAX_NESTING + 2)
        inner = f"{prefix}{node.name}." if isinstance(node, Function | ast.ClassDef) else prefix
        yield from _function_measures(path, node, inner)


def function_lines(function: Function) -> int:
    """Lines from `def` to the end, its docstring and inner functions not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines - sum(function_lines(node) for node in ast.walk(function) if isinstance(node, Function) and node is not function)


def num_parameters(function: Function) -> int:
    """Parameters that a caller sees: all but `self` and `cls`."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star]
    return len([argument for argument in named if argument.arg not in ("self", "cls")]) + len(stars)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """The deepest nesting of branches and loops; `elif` continues its `if`, inner functions count for themselves."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BRANCHES) and not is_elif)))
    return deepest


def check(sources: Iterable[Source], allowances: dict[str, str]) -> list[Finding]:
    """Sizes over budget that no allowance covers, sizes over the hard limit, and allowances that nothing needs."""
    needed: set[str] = set()
    findings = []
    for measure in (measure for source in sources for measure in measures(source)):
        if measure.value <= measure.limit:
            continue
        needed.add(measure.key)
        allowed = measure.hard if measure.key in allowances else measure.limit
        if measure.value > allowed:
            message = f"{measure.value} {measure.what}; at most {allowed}"
            findings.append(Finding(measure.path, measure.line, message))
    stale = sorted(set(allowances) - needed)
    return findings + [Finding("tools/size_allowances.toml", 1, f"nothing needs the allowance of `{key}`") for key in stale]


if __name__ == "__main__":
    allowances = tomllib.loads((ROOT / "tools/size_allowances.toml").read_text(encoding="utf-8"))["allowances"]
    sys.exit(report("sizes", check(project_files(SUFFIXES), allowances)))
