"""transformers with torch as a peer: the same weights in bfloat16, in an environment of its own.

The one idea: it shows what the plain way costs. Its GGUF reader dequantises the file; there is no continuous batching, so streams are
one batch of equally long prompts, which flatters it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.bench.compare.child import DriverRunner
from paceline.bench.compare.peers.base import PeerFile, Runner
from paceline.bench.compare.peers.install import ensure_installed, make_environment, peer_folder, peer_python
from paceline.bench.compare.workloads import Kind, Workload

VERSION = "5.24.0"
PACKAGES = (f"transformers=={VERSION}", "torch==2.13.0", "accelerate==1.15.0", "gguf==0.19.0", "numpy==2.4.6")
DRIVER = Path(__file__).parent / "drivers" / "transformers_driver.py"


@dataclass(frozen=True, slots=True)
class Transformers:
    """transformers; see the module."""

    folder: Path
    name: str = "transformers"
    version: str = VERSION
    kinds: frozenset[Kind] = frozenset({"decode", "prefill", "chats"})

    @staticmethod
    def in_cache() -> Transformers:
        """The one in the model cache's neighbourhood."""
        return Transformers(peer_folder("transformers", VERSION))

    def install(self) -> None:
        """Install it into its own environment, unless it is there. Errors: CapacityError when that fails"""
        ensure_installed(self.folder, PACKAGES, lambda folder: make_environment(folder, PACKAGES))

    def file_for(self, model: Path, workload: Workload) -> PeerFile:
        """The same file."""
        return PeerFile(model, "bfloat16")

    def start(self, file: PeerFile, workload: Workload, threads: int) -> Runner:
        """A driver with the model loaded. Errors: EngineError when its reader refuses the file"""
        return DriverRunner([peer_python(self.folder), "-I", DRIVER, file.path, str(threads)], self.name)
