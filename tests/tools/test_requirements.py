"""Requirements come from the extras of pyproject.toml, one a line."""

from __future__ import annotations

import pytest

from tools.requirements import requirements

PYPROJECT = '[project.optional-dependencies]\ntest = ["pytest>=8", "torch==2"]\ncheck = ["ruff"]\n'


def test_extras_are_joined_in_the_order_asked() -> None:
    assert requirements(PYPROJECT, ["check", "test"]) == ["ruff", "pytest>=8", "torch==2"]


def test_unknown_extra_is_an_error() -> None:
    with pytest.raises(KeyError):
        requirements(PYPROJECT, ["nothing"])
