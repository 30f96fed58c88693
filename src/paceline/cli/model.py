"""From what a person typed for MODEL to a path on this machine, with a progress bar when it must come from elsewhere.

The one idea: a path that exists is taken as it is, with hardly anything imported; names are looked up by `formats.pull`.
"""

from __future__ import annotations

from pathlib import Path

from paceline.formats.catalog import DEFAULT_MODEL

__all__ = ["DEFAULT_MODEL", "find_model"]


def find_model(name: str) -> Path:
    """The model's path; what is not here is pulled first. Errors: NotFoundError, ModelError."""
    path = Path(name)
    if path.exists():
        return path
    from paceline.cli.pull import pull_with_progress
    from paceline.formats.pull import resolve

    return resolve(name) or pull_with_progress(name)
