"""The folder of models on this machine: what lies there, and what is known to be whole.

The one idea: hashing a gigabyte takes seconds, so the digest of a file is written beside it together with its size and
time of change, and believed as long as both are the same.

It does not download, and it deletes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ModelError
from paceline.formats.catalog import models_dir, name_of_file
from paceline.formats.gguf import shard_paths
from paceline.formats.safetensors import CONFIG, INDEX, SINGLE

MAX_LISTED = 10_000
"""Most files of the folder that are looked at."""

Progress = Callable[[int, int | None], None]
"""Hears the bytes that are here and the bytes that there will be (None: nobody knows)."""

_MAX_RECORD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache: the path to open, its bytes with all shards, and the name that `resolve` takes."""

    path: Path
    size_bytes: int
    name: str
    in_catalog: bool


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read whole: about a second a gigabyte."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_verified(path: Path, sha256: str) -> None:
    """Write down that the file as it is now has this digest, where the folder lets us."""
    status = path.stat()
    record = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256}
    with suppress(OSError):
        _record_path(path).write_text(json.dumps(record))


def verified_sha256(path: Path) -> str | None:
    """The digest written down for a file, or None when there is none or the file has changed since."""
    try:
        with _record_path(path).open("rb") as file:
            record = json.loads(file.read(_MAX_RECORD_BYTES))
        status = path.stat()
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or (record.get("size"), record.get("mtime_ns")) != (status.st_size, status.st_mtime_ns):
        return None
    sha256 = record.get("sha256")
    return sha256 if isinstance(sha256, str) else None


def is_whole(path: Path, sha256: str | None) -> bool:
    """Whether the file is there and has this digest; None: whether any digest was once verified and it has not changed."""
    if not path.is_file():
        return False
    recorded = verified_sha256(path)
    if sha256 is None or recorded is not None:
        return recorded is not None and sha256 in (None, recorded)
    actual = sha256_of(path)
    if actual == sha256:
        record_verified(path, actual)
    return actual == sha256


def list_models() -> list[CachedModel]:
    """Every model in the cache, by name. A split model counts once; half-downloaded files do not count."""
    folder = models_dir()
    if not folder.is_dir():
        return []
    models = [_gguf_model(path, folder) for path in _first_shards(folder)]
    models += [_folder_model(path, folder) for path in sorted(folder.iterdir()) if _is_model_folder(path)]
    return sorted(models, key=lambda model: model.name)


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _first_shards(folder: Path) -> Iterator[Path]:
    """GGUF files of the folder and two levels down (`org--repo/quant/file`), one for each split model."""
    found = [path for pattern in ("*.gguf", "*/*.gguf", "*/*/*.gguf") for path in sorted(folder.glob(pattern))]
    for path in found[:MAX_LISTED]:
        try:
            is_first = shard_paths(path)[0] == path
        except ModelError:
            continue
        if is_first and path.is_file():
            yield path


def _gguf_model(path: Path, folder: Path) -> CachedModel:
    size_bytes = sum(shard.stat().st_size for shard in shard_paths(path) if shard.is_file())
    relative = path.relative_to(folder)
    if len(relative.parts) > 1:
        repo, file = relative.parts[0].replace("--", "/", 1), "/".join(relative.parts[1:])
        return CachedModel(path, size_bytes, f"{repo}:{file}", in_catalog=False)
    name = name_of_file(path.name)
    return CachedModel(path, size_bytes, name or path.name, in_catalog=name is not None)


def _is_model_folder(path: Path) -> bool:
    return (path / CONFIG).is_file() and ((path / SINGLE).is_file() or (path / INDEX).is_file())


def _folder_model(path: Path, folder: Path) -> CachedModel:
    size_bytes = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return CachedModel(path, size_bytes, str(path.relative_to(folder)).replace("--", "/", 1), in_catalog=False)
