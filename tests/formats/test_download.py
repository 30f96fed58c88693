"""A download against a server on loopback: resumed, verified, refused, and never half in place."""

from __future__ import annotations

import fcntl
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.errors import CapacityError, ModelError, NotFoundError, RequestError
from paceline.formats import download as module
from paceline.formats.download import MAX_STALLS, Download, download, fetch_json
from paceline.formats.model_cache import verified_sha256
from tests.generators.file_server import FileServer, Route, file_server

BODY = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


class Recorder:
    """Hears progress and waits instead of waiting."""

    def __init__(self) -> None:
        self.progress: list[tuple[int, int | None]] = []
        self.waits: list[float] = []

    def run(self, item: Download) -> None:
        download(item, lambda done, total: self.progress.append((done, total)), wait=self.waits.append)


def item_for(server: FileServer, path: Path, sha256: str | None = SHA256, size_bytes: int | None = None) -> Download:
    return Download(f"{server.address}/m.gguf", path, size_bytes, sha256)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_is_known_to_be(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY)
    recorder = Recorder()
    recorder.run(item_for(server, tmp_path / "new" / "m.gguf", size_bytes=len(BODY)))
    assert (tmp_path / "new" / "m.gguf").read_bytes() == BODY
    assert verified_sha256(tmp_path / "new" / "m.gguf") == SHA256
    assert names_in(tmp_path / "new") == ["m.gguf", "m.gguf.verified"]
    assert recorder.progress[0] == (0, len(BODY))
    assert recorder.progress[-1] == (len(BODY), len(BODY))
    assert recorder.progress == sorted(recorder.progress, key=lambda heard: heard[0])
    assert recorder.waits == []


def test_a_cut_connection_is_taken_up_where_it_ended(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY, cut_after=400_000)
    recorder = Recorder()
    recorder.run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert server.ranges("/m.gguf") == [None, "bytes=400000-", "bytes=800000-"]
    assert recorder.waits == [1.0, 1.0]


def test_a_later_run_goes_on_from_the_part_that_is_here(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part").write_bytes(BODY[:123_456])
    server.routes["/m.gguf"] = Route(BODY)
    recorder = Recorder()
    recorder.run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert server.ranges("/m.gguf") == ["bytes=123456-"]
    assert recorder.progress[0] == (123_456, len(BODY))


def test_a_part_that_is_complete_needs_no_request(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part").write_bytes(BODY)
    Recorder().run(item_for(server, tmp_path / "m.gguf", size_bytes=len(BODY)))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert server.requests == []


def test_a_server_without_ranges_starts_over(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part").write_bytes(b"x" * 1000)
    server.routes["/m.gguf"] = Route(BODY, takes_ranges=False)
    Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY


def test_a_part_longer_than_the_file_is_dropped(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part").write_bytes(BODY + b"more")
    server.routes["/m.gguf"] = Route(BODY)
    Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert server.ranges("/m.gguf") == [f"bytes={len(BODY) + 4}-", None]


def test_a_file_of_unknown_length_arrives(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY, says_length=False)
    recorder = Recorder()
    recorder.run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert recorder.progress[-1] == (len(BODY), None)


def test_another_part_than_asked_for_is_not_appended(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part").write_bytes(BODY[:1000])
    server.routes["/m.gguf"] = Route(BODY, shift_ranges=7)
    with pytest.raises(CapacityError, match="another part of the file"):
        Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf.part").read_bytes() == BODY[:1000]


def test_wrong_bytes_are_thrown_away(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY)
    with pytest.raises(ModelError, match=f"is {SHA256}; expected {'0' * 64}"):
        Recorder().run(item_for(server, tmp_path / "m.gguf", sha256="0" * 64))
    assert names_in(tmp_path) == []


def test_a_file_of_another_size_is_refused_before_it_comes(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY)
    with pytest.raises(ModelError, match=f"the server has {len(BODY)} bytes; expected 77"):
        Recorder().run(item_for(server, tmp_path / "m.gguf", size_bytes=77))
    assert names_in(tmp_path) == []


def test_a_file_that_does_not_exist_is_not_found_at_once(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"m\.gguf` does not exist"):
        Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert len(server.requests) == 1
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_file_asks_for_a_token(server: FileServer, tmp_path: Path, status: int) -> None:
    server.routes["/m.gguf"] = Route(BODY, statuses=[status])
    with pytest.raises(RequestError, match="set `HF_TOKEN`"):
        Recorder().run(item_for(server, tmp_path / "m.gguf"))


def test_a_busy_server_is_asked_again_later(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY, statuses=[503, 429])
    recorder = Recorder()
    recorder.run(item_for(server, tmp_path / "m.gguf"))
    assert (tmp_path / "m.gguf").read_bytes() == BODY
    assert recorder.waits == [2.0, 4.0]


def test_a_server_that_stays_busy_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY, statuses=[500] * 50)
    with pytest.raises(CapacityError, match="answered with status 500"):
        Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert len(server.requests) == MAX_STALLS


def test_no_network_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(CapacityError, match=rf"`127\.0\.0\.1:{port}` cannot be reached \(.*refused.*\)\.\nCheck the network"):
        Recorder().run(Download(f"http://127.0.0.1:{port}/m.gguf", tmp_path / "m.gguf"))
    assert names_in(tmp_path) == []


def test_a_token_goes_to_the_hub_and_not_where_it_redirects(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(redirect_to=f"{server.address}/storage")
    server.routes["/storage"] = Route(BODY)
    Recorder().run(Download(f"{server.address}/m.gguf", tmp_path / "m.gguf", token="secret"))
    assert server.requests == [("/m.gguf", None, "Bearer secret"), ("/storage", None, None)]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/m", "m.gguf"])
def test_only_web_addresses_are_opened(tmp_path: Path, url: str) -> None:
    with pytest.raises(RequestError, match="is no web address"):
        Recorder().run(Download(url, tmp_path / "m.gguf"))


def test_two_processes_do_not_write_one_file(server: FileServer, tmp_path: Path) -> None:
    server.routes["/m.gguf"] = Route(BODY)
    with (tmp_path / "m.gguf.part").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CapacityError, match=r"Another process is bringing `m\.gguf`"):
            Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert server.requests == []


def test_a_disk_without_room_is_told_before_it_fills(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.routes["/m.gguf"] = Route(BODY)
    monkeypatch.setattr(module, "SPARE_DISK_BYTES", 1 << 60)
    with pytest.raises(CapacityError, match=rf"`m\.gguf` needs {len(BODY)} bytes, but the disk has \d+"):
        Recorder().run(item_for(server, tmp_path / "m.gguf"))
    assert names_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_told(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CapacityError, match="cannot be written"):
        Recorder().run(item_for(server, tmp_path / "file" / "m.gguf"))


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_told(server: FileServer, body: bytes) -> None:
    server.routes["/api"] = Route(body)
    with pytest.raises(CapacityError, match="does not answer with JSON"):
        fetch_json(f"{server.address}/api")


def test_json_is_parsed_and_its_absence_not_found(server: FileServer) -> None:
    server.routes["/api"] = Route(b'{"a": [1]}')
    assert fetch_json(f"{server.address}/api") == {"a": [1]}
    with pytest.raises(NotFoundError):
        fetch_json(f"{server.address}/none")
