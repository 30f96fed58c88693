"""The size check measures what its docstring says, and allowances neither hide growth nor go stale."""

from __future__ import annotations

import ast

import pytest

from tools.check_sizes import Function, check, function_lines, nesting, num_parameters
from tools.tree import Source


def function(text: str) -> Function:
    node = ast.parse(text).body[0]
    assert isinstance(node, Function)
    return node


def long_function(lines: int) -> Source:
    return Source("a.py", "def f():\n" + "    x = 1\n" * (lines - 1))


def test_docstring_and_inner_functions_are_not_counted() -> None:
    text = 'def f():\n    """One.\n\n    Two.\n    """\n    x = 1\n    def g():\n        return 2\n    return g\n'
    assert function_lines(function(text)) == 3


def test_self_is_no_parameter_and_stars_are() -> None:
    assert num_parameters(function("def f(self, a, b=1, *args, c, **rest): ...")) == 5


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("def f():\n  pass", 0),
        ("def f():\n  if a:\n    pass\n  elif b:\n    pass\n  elif c:\n    pass", 1),
        ("def f():\n  for a in b:\n    with c:\n      if d:\n        pass", 3),
        ("def f():\n  if a:\n    pass\n  else:\n    x = 1\n    if b:\n      pass", 2),
        ("def f():\n  if a:\n    def g():\n      if b:\n        pass", 1),
    ],
)
def test_nesting_counts_branches_and_loops(text: str, depth: int) -> None:
    assert nesting(function(text)) == depth


def test_budget_is_exact() -> None:
    assert check([long_function(40)], {}) == []
    assert [f.message for f in check([long_function(41)], {})] == ["41 lines of `f`; at most 40"]


def test_allowance_lifts_to_the_hard_limit_only() -> None:
    allowances = {"a.py:f": "a table"}
    assert check([long_function(60)], allowances) == []
    assert [f.message for f in check([long_function(61)], allowances)] == ["61 lines of `f`; at most 60"]


def test_methods_are_named_by_their_class() -> None:
    source = Source("a.py", "class A:\n  def f(self):\n" + "    x = 1\n" * 41)
    assert check([source], {"a.py:A.f": "a table"}) == []


def test_allowance_that_nothing_needs_is_found() -> None:
    assert [f.message for f in check([long_function(3)], {"a.py:f": "gone"})] == ["nothing needs the allowance of `a.py:f`"]


def test_long_file_of_any_language_is_found() -> None:
    assert [f.message for f in check([Source("a.cpp", "\n" * 401)], {})] == ["401 lines; at most 400"]
