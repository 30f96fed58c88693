"""Paceline: an LLM inference and serving engine.

    from paceline import LLM, SamplingParams

The names below are imported when first used, so that `import paceline` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.offline import LLM, RequestOutput
    from paceline.sampling.params import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "RequestOutput", "SamplingParams", "__version__"]

_HOMES = {"LLM": "paceline.offline", "RequestOutput": "paceline.offline", "SamplingParams": "paceline.sampling.params"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `paceline` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
