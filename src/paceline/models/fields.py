"""Typed, bounded reads of a checkpoint's metadata.

The one idea: metadata comes from a stranger's file. Every value is asked for with the range in which it makes sense, and a
value that is missing, of another type or out of range is a `ModelError` that names the key and what was expected.

It does not know what the keys mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.errors import ModelError
from paceline.formats.checkpoint import MetaValue


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping of metadata, read by checked getters; `prefix` is put before every key (`llama.` in GGUF)."""

    values: Mapping[str, MetaValue]
    path: Path
    prefix: str = ""

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(self.prefix + key) is not None

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number in low…high; a list of equal numbers counts as one. Errors: ModelError"""
        value = self._uniform(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number in low…high. Errors: ModelError"""
        value = self._uniform(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not low <= value <= high:
            raise self.error(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Errors: ModelError"""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string. Errors: ModelError"""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def table(self, key: str) -> Fields | None:
        """A nested object, or None when the key is absent. Errors: ModelError when it is something else"""
        value = self.values.get(self.prefix + key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, value, "an object")
        return Fields(value, self.path)

    def error(self, key: str, value: object, expected: str) -> ModelError:
        """The error for a value that cannot be used."""
        found = "is missing" if value is None else f"is {str(value)[:80]!r}"
        return ModelError(f"`{self.prefix}{key}` {found}; expected {expected}.", path=self.path)

    def _value(self, key: str, default: MetaValue) -> MetaValue:
        value = self.values.get(self.prefix + key)
        return default if value is None else value

    def _uniform(self, key: str, default: MetaValue) -> MetaValue:
        value = self._value(key, default)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            return value[0]
        return value
