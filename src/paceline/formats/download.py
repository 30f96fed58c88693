"""Bring one file over HTTP: resumed where it was cut, verified, and put in place whole.

The one idea: bytes gather in `<file>.part` under a lock; only a file whose size and SHA-256 are right gets its name, by an
atomic rename. So a file that is there is whole, whatever happened on the way.

It does not know the hub or the catalog, and it keeps no connection.
"""

from __future__ import annotations

import errno
import fcntl
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from paceline.errors import CapacityError, ModelError, NotFoundError, PacelineError, RequestError
from paceline.formats.model_cache import Progress, record_verified, sha256_of

Wait = Callable[[float], None]
"""Waits that many seconds before the next attempt."""

TIMEOUT_S = 30.0
MAX_STALLS = 3
"""Attempts in a row that brought no byte before it is given up; an attempt that brought some starts the count anew."""
MAX_ATTEMPTS = 100
MAX_FILE_BYTES = 1 << 41
MAX_JSON_BYTES = 1 << 25
CHUNK_BYTES = 1 << 18
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
SPARE_DISK_BYTES = 1 << 26
"""Disk space that a download leaves free."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file to bring: from where, to where, and what is known of it beforehand."""

    url: str
    path: Path
    size_bytes: int | None = None
    sha256: str | None = None
    token: str | None = None


def download(item: Download, progress: Progress, *, wait: Wait = time.sleep) -> None:
    """Bring `item` to its path.

    Errors:  NotFoundError when the server has no such file; RequestError when it wants a token; CapacityError when the
             network, the server or the disk is at fault; ModelError when the bytes are not the expected ones
    """
    with partial_file(item.path) as file:
        _transfer(item, file, progress, wait)
        settle(file, item.path, item.sha256)


def open_url(url: str, *, token: str | None = None, start: int = 0, accept: str = "*/*") -> http.client.HTTPResponse:
    """The response to a GET from byte `start` on.

    Errors:  as urllib's: HTTPError, URLError, other OSErrors, HTTPException
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise RequestError(f"`{url}` is no web address; expected `https://…`.")
    request = urllib.request.Request(url, headers={"User-Agent": "paceline", "Accept": accept, "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    if token is not None:
        # Not carried along on redirects: the storage hosts behind a hub must not see the token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    return response


def fetch_json(url: str, *, token: str | None = None, accept: str = "application/json") -> object:
    """What a JSON interface answers.

    Errors:  as `network_error`; CapacityError when the answer is no JSON or longer than `MAX_JSON_BYTES`
    """
    try:
        with open_url(url, token=token, accept=accept) as response:
            content = response.read(MAX_JSON_BYTES + 1)
        if len(content) <= MAX_JSON_BYTES:
            parsed: object = json.loads(content)
            return parsed
    except urllib.error.HTTPError as error:
        error.close()
        raise network_error(url, error) from None
    except (OSError, http.client.HTTPException) as error:
        raise network_error(url, error) from None
    except (ValueError, RecursionError):
        pass
    raise CapacityError(f"`{url}` does not answer with JSON of at most {MAX_JSON_BYTES} bytes.")


def network_error(url: str, error: Exception) -> PacelineError:
    """What to tell somebody about a failed request."""
    host = urlsplit(url).netloc
    if isinstance(error, urllib.error.HTTPError):
        if error.code in (404, 410):
            return NotFoundError(f"`{url}` does not exist.", param="model")
        if error.code in (401, 403):
            hint = "If the model is gated, accept its terms on the hub and set `HF_TOKEN`."
            return RequestError(f"`{host}` refused `{url}` (status {error.code}).\n{hint}")
        return CapacityError(f"`{host}` answered with status {error.code}; try again later.")
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    hint = "Check the network and its proxy (`HF_ENDPOINT` and `PIP_INDEX_URL` name mirrors), or name a model file that is already here."
    return CapacityError(f"`{host}` cannot be reached ({reason or type(error).__name__}).\n{hint}")


@contextmanager
def partial_file(path: Path) -> Iterator[BinaryIO]:
    """`<path>.part`, open for appending and locked against other processes.

    Errors:  CapacityError when another process is bringing the same file, or the disk fails or is full (then or later)
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(path.name + ".part").open("ab") as file, ExitStack() as at_end:
            _lock(file, path)
            at_end.callback(_drop_if_empty, file)
            yield file
    except OSError as error:
        hint = "Free some space, or set `PACELINE_HOME` to a folder that can be written; what has come is kept."
        raise CapacityError(f"`{path.parent}` cannot be written ({error.strerror}).\n{hint}") from None


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CapacityError(f"Another process is bringing `{path.name}`; wait for it.") from None


def _drop_if_empty(file: BinaryIO) -> None:
    if os.fstat(file.fileno()).st_size == 0:
        Path(file.name).unlink(missing_ok=True)


def settle(file: BinaryIO, path: Path, sha256: str | None) -> None:
    """Verify a complete `.part` file and give it its name; a wrong one is thrown away. Errors: ModelError."""
    file.flush()
    os.fsync(file.fileno())
    partial = Path(file.name)
    actual = sha256_of(partial)
    if sha256 is not None and actual != sha256:
        partial.unlink()
        raise ModelError(f"the SHA-256 of what came is {actual}; expected {sha256}. It was thrown away.\nTry again.", path=path)
    os.replace(partial, path)
    record_verified(path, actual)


def _transfer(item: Download, file: BinaryIO, progress: Progress, wait: Wait) -> None:
    """Attempts until the file is whole, as long as they get somewhere."""
    stalls = 0
    for _ in range(MAX_ATTEMPTS):
        before = file.tell()
        error = _attempt(item, file, progress)
        if error is None:
            return
        stalls = 0 if file.tell() > before else stalls + 1
        if stalls == MAX_STALLS:
            raise network_error(item.url, error) from None
        wait(2.0**stalls)
    raise CapacityError(f"`{item.path.name}` was cut off {MAX_ATTEMPTS} times.\nRun the same command again to go on.")


def _attempt(item: Download, file: BinaryIO, progress: Progress) -> Exception | None:
    """One request. None: the file is whole; an exception: what stopped it, and trying again may help."""
    try:
        is_whole = _receive(item, file, progress)
        return None if is_whole else ConnectionError("the connection was cut")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what is here is not a beginning of what the server has
            _restart(file)
            return error
        if error.code in RETRIED:
            return error
        raise network_error(item.url, error) from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise
        return error


def _receive(item: Download, file: BinaryIO, progress: Progress) -> bool:
    """Append what the server sends; whether that was all."""
    if item.size_bytes is not None and file.tell() == item.size_bytes:
        return True
    with open_url(item.url, token=item.token, start=file.tell()) as response:
        if response.status != 206:
            _restart(file)
        done = file.tell()
        total = _total(response, done)
        _check_size(item, file, done, total)
        progress(done, total)
        while chunk := response.read(CHUNK_BYTES):
            done += len(chunk)
            if done > (MAX_FILE_BYTES if total is None else total):
                raise ModelError(f"the server sends more than the {total} bytes it spoke of", path=item.path)
            file.write(chunk)
            progress(done, total)
    return total is None or done == total


def _restart(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
    """Bytes of the whole file, or None when the server does not say."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != start:
            raise http.client.HTTPException("the server answered with another part of the file than was asked for")
        return int(span[2])
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _check_size(item: Download, file: BinaryIO, done: int, total: int | None) -> None:
    if total is None:
        return
    if item.size_bytes is not None and total != item.size_bytes:
        raise ModelError(f"the server has {total} bytes; expected {item.size_bytes}", path=item.url)
    free = shutil.disk_usage(Path(file.name).parent).free
    if total - done > free - SPARE_DISK_BYTES:
        raise CapacityError(f"`{item.path.name}` needs {total - done} bytes, but the disk has {free}.\nFree some space and try again.")
