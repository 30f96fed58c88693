"""Which kernel target runs: the best that this CPU has, or the one asked for by name, and why.

The one idea: the choice is made from the CPU's own answers and can always be explained and overruled; nothing is tried and
caught. It compiles nothing: a build contains the targets that its machine's architecture allows.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline import env
from paceline.backends.native import _core
from paceline.errors import RequestError


@dataclass(frozen=True, slots=True)
class Target:
    """One target of this build; `reason` says why it can or cannot run here."""

    name: str
    is_available: bool
    reason: str


def explain_targets() -> tuple[Target, ...]:
    """Every target of this build, best first."""
    return tuple(Target(*row) for row in _core.targets())


def choose_target(name: str | None = None) -> Target:
    """The target named (or forced by the environment), else the best available. Errors: RequestError"""
    targets = explain_targets()
    name = name or env.forced_target()
    if name is None:
        return next(target for target in targets if target.is_available)
    for target in targets:
        if target.name == name and target.is_available:
            return target
        if target.name == name:
            raise RequestError(f"`target` is `{name}`, but {target.reason}.", param="target")
    known = ", ".join(target.name for target in targets if target.is_available)
    raise RequestError(f"`target` is `{name}`; expected one of {known}.", param="target")
