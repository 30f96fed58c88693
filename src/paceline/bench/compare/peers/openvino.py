"""OpenVINO GenAI as a peer: its continuous-batching pipeline on the CPU, in an environment of its own.

The one idea: it reads the same GGUF file wherever every tensor has a type that its reader knows; else Q4_0 made from the same file by
llama.cpp's quantiser, which it turns into its own int4, and the label says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.bench.compare.child import DriverRunner
from paceline.bench.compare.peers.base import SAME_FILE, PeerFile, Runner
from paceline.bench.compare.peers.install import ensure_installed, make_environment, peer_folder, peer_python
from paceline.bench.compare.peers.llama_cpp import LlamaCpp
from paceline.bench.compare.workloads import Kind, Workload
from paceline.formats.open import open_checkpoint
from paceline.formats.types import TensorType

VERSION = "2026.4.1"
PACKAGES = (f"openvino-genai=={VERSION}.0",)
READABLE = frozenset({TensorType.F32, TensorType.F16, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q6_K})
"""Tensor types that its GGUF reader takes; Q5_0 is what this version refuses in practice."""
DRIVER = Path(__file__).parent / "drivers" / "openvino_driver.py"


@dataclass(frozen=True, slots=True)
class OpenVino:
    """OpenVINO GenAI; see the module."""

    folder: Path
    quantizer: LlamaCpp
    name: str = "openvino"
    version: str = VERSION
    kinds: frozenset[Kind] = frozenset({"decode", "prefill", "chats"})

    @staticmethod
    def in_cache() -> OpenVino:
        """The one in the model cache's neighbourhood."""
        return OpenVino(peer_folder("openvino", VERSION), LlamaCpp.in_cache())

    def install(self) -> None:
        """Install it into its own environment, unless it is there. Errors: CapacityError when that fails"""
        ensure_installed(self.folder, PACKAGES, lambda folder: make_environment(folder, PACKAGES))

    def file_for(self, model: Path, workload: Workload) -> PeerFile:
        """The same file where its reader takes it, else Q4_0 of it. Errors: as the quantiser's"""
        checkpoint = open_checkpoint(model)
        if all(checkpoint.tensor(name).type in READABLE for name in checkpoint.tensor_names):
            return PeerFile(model, SAME_FILE)
        self.quantizer.install()
        return self.quantizer.q4_0_file(model)

    def start(self, file: PeerFile, workload: Workload, threads: int) -> Runner:
        """A driver with the model loaded. Errors: EngineError when its reader refuses the file"""
        return DriverRunner([peer_python(self.folder), "-I", DRIVER, file.path, str(threads)], self.name)
