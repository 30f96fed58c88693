"""From what a person typed for MODEL to a path on this machine, with a progress bar when it must come from elsewhere.

The one idea: a path that exists is taken as it is, with nothing imported; names are looked up by `formats.pull`.
"""

from __future__ import annotations

import sys
from pathlib import Path

DEFAULT_MODEL = "smollm2:135m"


def find_model(name: str) -> Path:
    """The model's path; what is not here is pulled first. Errors: NotFoundError, ModelError."""
    path = Path(name)
    if path.exists():
        return path
    from paceline.formats.pull import resolve

    return resolve(name) or pull_with_progress(name)
