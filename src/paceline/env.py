"""The environment variables that Paceline reads: all of them, here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Where models and caches live: `PACELINE_HOME`, else `XDG_CACHE_HOME/paceline`, else `~/.cache/paceline`."""
    if home := os.environ.get("PACELINE_HOME"):
        return Path(home)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "paceline"


def forced_target() -> str | None:
    """The native kernel target forced by `PACELINE_TARGET` (`portable`, `avx512_vnni` …), or None: choose by CPUID."""
    return os.environ.get("PACELINE_TARGET") or None


def log_level() -> str:
    """The least level that is logged: `PACELINE_LOG` (`debug`, `info`, `warning`, `error`), default `info`."""
    return os.environ.get("PACELINE_LOG", "info").lower()


def hub_endpoint() -> str:
    """The model hub's base address: `HF_ENDPOINT`, default the public hub."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def hub_token() -> str | None:
    """The hub access token from `HF_TOKEN`, or None."""
    return os.environ.get("HF_TOKEN") or None


def package_index() -> str:
    """The Python package index's base address: `PIP_INDEX_URL`, default the public one."""
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def traces_dir() -> Path:
    """Where recorded request traces lie that benchmarks replay: `PACELINE_TRACES`, default `traces` in the working folder."""
    return Path(os.environ.get("PACELINE_TRACES") or "traces")


def child_environment() -> dict[str, str]:
    """A copy of this process's environment for a child process."""
    return dict(os.environ)
