"""The model hub: what a repository holds, and which of it is the model that somebody asked for.

The one idea: a hub id `org/repo[:file-or-quant]` is first a question about names, the same whether the names are those of a
listing or of a folder; so one pure function answers it for both.

It talks to nobody.
Source: the Hugging Face hub's HTTP interface (`/api/models/{repo}?blobs=true`, `/{repo}/resolve/{revision}/{file}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from paceline.errors import CapacityError, ModelError, NotFoundError
from paceline.formats.gguf import shard_paths
from paceline.formats.safetensors import CONFIG, INDEX, SIDE_FILES, SINGLE

PREFERRED_QUANTS = ("Q4_K_M", "Q4_0", "Q4_1", "Q5_K_M", "Q4_K_S", "Q6_K", "Q8_0", "F16", "BF16", "F32")
"""Which GGUF file of a repository is meant when nobody says, in order."""

MAX_FILES = 2048

_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(?P<wanted>[\w./ +-]{1,255}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubName:
    """A hub id as typed: the repository, and the file or quantisation that is wanted of it (None: the preferred one)."""

    repo: str
    wanted: str | None

    @property
    def folder_name(self) -> str:
        """The folder of the model cache that holds files of this repository."""
        return self.repo.replace("/", "--")


@dataclass(frozen=True, slots=True)
class HubListing:
    """A file of a repository, as the hub lists it; `sha256` only for large files."""

    name: str
    size_bytes: int | None
    sha256: str | None


def parse_hub_name(text: str) -> HubName | None:
    """The hub id in `text`, or None when it is none."""
    match = _NAME.fullmatch(text)
    return HubName(match["repo"], match["wanted"]) if match else None


def choose_files(names: Iterable[str], wanted: str | None) -> list[str]:
    """The files that make up the wanted model, the one to open first: all shards of a GGUF, or a whole safetensors folder.

    Errors:  NotFoundError when nothing fits, or when several do and nothing says which
    """
    safe = {name for name in names if _is_safe(name)}
    models = sorted({first for name in safe if (first := _first_shard(name)) is not None})
    if not models and wanted is None and CONFIG in safe and (SINGLE in safe or INDEX in safe):
        weights = sorted(name for name in safe if name.endswith(".safetensors") and "/" not in name)
        return [CONFIG, *sorted(safe & {INDEX, *SIDE_FILES}), *weights]
    for tried in (wanted,) if wanted else PREFERRED_QUANTS:
        found = [name for name in models if name == tried] or [name for name in models if _has_quant(name, tried)]
        if len(found) == 1:
            return [str(shard) for shard in shard_paths(Path(found[0]))]
    if wanted is None and len(models) == 1:
        return [str(shard) for shard in shard_paths(Path(models[0]))]
    listed = ", ".join(f"`{name}`" for name in models[:12]) or "no GGUF file and no safetensors folder"
    raise NotFoundError(f"{f'`{wanted}`' if wanted else 'A model'} cannot be chosen; there is {listed}.", param="model")


def listing_url(endpoint: str, repo: str) -> str:
    """Where the listing of a repository's main branch can be had."""
    return f"{endpoint}/api/models/{quote(repo)}?blobs=true"


def parse_listing(listing: object) -> dict[str, HubListing]:
    """The files of a listing by name; what makes no sense as a file is left out. Errors: CapacityError when nothing makes sense."""
    siblings = listing.get("siblings") if isinstance(listing, dict) else None
    if not isinstance(siblings, list):
        raise CapacityError("The hub's listing is not what its interface promises; expected JSON with `siblings`.")
    files = [_listed_file(sibling) for sibling in siblings[:MAX_FILES]]
    return {file.name: file for file in files if file is not None}


def file_url(endpoint: str, repo: str, file: str) -> str:
    """Where a file of a repository's main branch can be had."""
    return f"{endpoint}/{quote(repo)}/resolve/main/{quote(file)}"


def _listed_file(sibling: object) -> HubListing | None:
    if not isinstance(sibling, dict) or not isinstance(sibling.get("rfilename"), str):
        return None
    large = sibling.get("lfs")
    sha256 = large.get("sha256") if isinstance(large, dict) else None
    size = sibling.get("size")
    return HubListing(
        sibling["rfilename"],
        size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        sha256 if isinstance(sha256, str) and re.fullmatch(r"[0-9a-f]{64}", sha256) else None,
    )


def _is_safe(name: str) -> bool:
    """Whether a listed name stays inside the folder that it is put in."""
    parts = PurePosixPath(name).parts
    return 1 <= len(parts) <= 2 and not name.startswith("/") and ".." not in parts and "\\" not in name and name.isprintable()


def _first_shard(name: str) -> str | None:
    """The file to open of the GGUF model that this one belongs to; None when it is no language model's file."""
    if not name.endswith(".gguf") or "mmproj" in name.lower():
        return None
    try:
        return str(shard_paths(Path(name))[0])
    except ModelError:
        return None


def _has_quant(name: str, quant: str) -> bool:
    """Whether a file name says this quantisation, as a word of its own: `…-Q4_K_M.gguf`, not `…-IQ4_K_M.gguf`."""
    return re.search(rf"(?:^|[-./_]){re.escape(quant)}(?:[-./]|$)", name, re.IGNORECASE) is not None
