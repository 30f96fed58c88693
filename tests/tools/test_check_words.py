"""The word check finds machine paths and promises, and nothing that merely looks like them."""

from __future__ import annotations

import pytest

from tools.check_words import check
from tools.tree import Source

PROMISE = "TO" + "DO"


@pytest.mark.parametrize("line", [f"# {PROMISE}: later", f"x = '/{'home'}/somebody/x'", f"see /{'tmp'}/log.txt"])
def test_refused_line_is_found_with_its_number(line: str) -> None:
    assert [(finding.path, finding.line) for finding in check([Source("a.py", "fine\n" + line)])] == [("a.py", 2)]


@pytest.mark.parametrize("line", ["TODOS", "https://example.org/home/x", "~/.cache/paceline", "/v1/models", "tmp_path / 'a'"])
def test_similar_line_is_fine(line: str) -> None:
    assert check([Source("a.py", line)]) == []
