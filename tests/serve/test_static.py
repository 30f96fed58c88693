"""The page is served from memory, under a policy that lets nothing else in."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from paceline.serve.static import StaticFiles


def client_of(folder: Path) -> TestClient:
    files = StaticFiles(folder)
    return TestClient(Starlette(routes=[Route(path, files.serve) for path in files.paths]))


def test_files_come_with_their_type_and_a_strict_policy(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>hi")
    (tmp_path / "app.js").write_text("1")
    client = client_of(tmp_path)
    assert client.get("/").text == "<p>hi"
    assert client.get("/app.js").headers["content-type"].startswith("text/javascript")
    for path in ("/", "/app.js"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_without_a_page_there_is_a_hint(tmp_path: Path) -> None:
    assert "/v1/chat/completions" in client_of(tmp_path / "absent").get("/").text


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/a/../../secret", "//etc/passwd", "/secret%00"])
def test_no_path_reaches_the_file_system(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("x")
    assert client_of(tmp_path / "page").get(path).status_code == 404
