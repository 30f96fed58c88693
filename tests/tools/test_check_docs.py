"""The document check finds stale generated files, dead links and a long README."""

from __future__ import annotations

from pathlib import Path

from tools.check_docs import length_findings, link_findings, stale_findings
from tools.tree import Source


def test_missing_and_changed_files_are_stale(tmp_path: Path) -> None:
    (tmp_path / "same.md").write_text("text")
    (tmp_path / "other.md").write_text("old")
    found = stale_findings({"same.md": "text", "other.md": "new", "none.md": ""}, tmp_path)
    assert [finding.path for finding in found] == ["docs/reference/other.md", "docs/reference/none.md"]


def test_link_to_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("")
    text = "[a](a.md) [here](a.md#part) [web](https://example.org/x) [part](#part)\n[gone](gone.md)"
    found = list(link_findings([Source("docs/b.md", text)], tmp_path))
    assert [(finding.line, finding.message) for finding in found] == [(2, "`gone.md` does not exist")]


def test_readme_over_its_length_is_found() -> None:
    assert list(length_findings([Source("README.md", "x\n" * 150)])) == []
    assert len(list(length_findings([Source("README.md", "x\n" * 151)]))) == 1
