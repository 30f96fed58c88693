"""From what a person typed for MODEL to a path on this machine, with a progress bar when it must come from elsewhere.

The one idea: what is here is found with hardly anything imported, so that `serve` starts its engine at once; everything else is
`formats.pull`'s to resolve and to bring.
"""

from __future__ import annotations

from pathlib import Path

from paceline.formats.catalog import CATALOG, DEFAULT_MODEL, models_dir

__all__ = ["DEFAULT_MODEL", "find_model"]


def find_model(name: str) -> Path:
    """The model's path; what is not here is pulled first. Errors: NotFoundError, ModelError."""
    known = _known_file(name)
    if known is not None:
        return known
    from paceline.cli.pull import pull_with_progress
    from paceline.formats.pull import resolve

    return resolve(name) or pull_with_progress(name)


def _known_file(name: str) -> Path | None:
    """A file that is named by its path, or by the catalog and lies in the cache; `formats.pull` would say the same 0.1 s later."""
    entry = CATALOG.get(name.lower())
    path = models_dir() / entry.file_name if entry else Path(name)
    try:
        return path if path.is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        return None
