"""llama.cpp as a peer: its own benchmarks, its own server and its own quantiser, built natively from a pinned source package.

The one idea: it is measured by the programs with which its authors measure it, with flash attention on, which is the faster choice here
for prompts and for batches. A workload's options are in `bench_command` and `batched_command`; nothing is pinned to cores on either side.

The source comes from the package `llama-cpp-python`, which carries llama.cpp whole; the Python binding itself is not built.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.bench.compare.child import run_program
from paceline.bench.compare.peers.base import SAME_FILE, PeerFile, Runner
from paceline.bench.compare.peers.install import INSTALL_TIMEOUT_S, ensure_installed, make_environment, peer_folder, pip, run_build
from paceline.bench.compare.servers import ServerRunner
from paceline.bench.compare.workloads import Kind, Workload
from paceline.bench.report import note
from paceline.errors import EngineError, ModelError
from paceline.planner.machine import read_machine

VERSION = "0.3.36"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
BUILD_PACKAGES = ("cmake==4.4.5", "ninja==1.13.2")
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-server", "llama-quantize")
BUILD_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
Q4_0_LABEL = "Q4_0 by llama-quantize"
SLOT_TOKENS = 256
"""The context of each stream is a multiple of this many tokens, as its cache rounds it anyway."""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """llama.cpp; see the module."""

    folder: Path
    name: str = "llama.cpp"
    version: str = VERSION
    kinds: frozenset[Kind] = frozenset({"decode", "prefill", "chats", "http"})

    @staticmethod
    def in_cache() -> LlamaCpp:
        """The one in the model cache's neighbourhood."""
        return LlamaCpp(peer_folder("llama.cpp", VERSION))

    @property
    def source(self) -> Path:
        """Its source folder."""
        return self.folder / "llama.cpp"

    def program(self, name: str) -> Path:
        """One of its programs."""
        return self.folder / "build" / "bin" / name

    def install(self) -> None:
        """Download, unpack and build it, unless it is there. Errors: CapacityError when that fails"""
        ensure_installed(self.folder, (SDIST_SHA256, *BUILD_PACKAGES, *BUILD_OPTIONS, *PROGRAMS), self._install)

    def file_for(self, model: Path, workload: Workload) -> PeerFile:
        """The same file; over HTTP its fastest, Q4_0."""
        return self.q4_0_file(model) if workload.kind == "http" else PeerFile(model, SAME_FILE)

    def q4_0_file(self, model: Path) -> PeerFile:
        """The model as Q4_0, requantised by its own quantiser, made once. Errors: ModelError · EngineError when it cannot be made"""
        from paceline.formats.open import open_checkpoint

        checkpoint = open_checkpoint(model)
        if checkpoint.kind != "gguf":
            raise ModelError("a peer reads a GGUF file; this is a folder", path=model)
        path = self.folder.parent / "files" / f"{model.stem}-{checkpoint.digest()[:12]}-q4_0.gguf"
        if not path.exists():
            note(f"{self.name}: making {path.name} …")
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            run_program([self.program("llama-quantize"), "--allow-requantize", model, partial, "Q4_0"])
            partial.replace(path)
        return PeerFile(path, Q4_0_LABEL)

    def start(self, file: PeerFile, workload: Workload, threads: int) -> Runner:
        """A server for `http`, else its benchmark programs. Errors: EngineError when the server does not get ready"""
        if workload.kind == "http":
            return ServerRunner(lambda port: server_command(self, file.path, workload, threads, port), "llama-server")
        return Programs(self, file.path, threads)

    def _install(self, folder: Path) -> None:
        make_environment(folder, BUILD_PACKAGES)
        note(f"{folder.name}: downloading the source …")
        requirement = folder / "source.txt"
        requirement.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SDIST_SHA256}\n")
        download = folder / "download"
        command = [*pip(folder), "download", "--no-deps", "--no-binary", ":all:", "--dest", download, "--requirement", requirement]
        run_program(command, INSTALL_TIMEOUT_S)
        (archive,) = download.glob("*.tar.gz")
        unpack(archive, self.source)
        self._build(folder)
        shutil.rmtree(download)

    def _build(self, folder: Path) -> None:
        jobs = read_machine().num_cores
        note(f"{folder.name}: building with {jobs} jobs, which takes some minutes …")
        cmake, ninja = folder / "venv" / "bin" / "cmake", folder / "venv" / "bin" / "ninja"
        configure: list[str | Path] = [
            cmake,
            "-S",
            self.source,
            "-B",
            folder / "build",
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            *BUILD_OPTIONS,
        ]
        run_program(configure, INSTALL_TIMEOUT_S)
        run_build([cmake, "--build", folder / "build", "--parallel", str(jobs), "--target", *PROGRAMS], folder.name)


def unpack(archive: Path, target: Path) -> None:
    """The folder `vendor/llama.cpp` of a source package, at `target`. Errors: EngineError when the package has none"""
    with tarfile.open(archive) as package:
        for member in package:
            _, is_inside, inner = member.name.partition("/vendor/llama.cpp/")
            if is_inside:
                member.name = inner
                package.extract(member, target, filter="data")
    if not (target / "CMakeLists.txt").exists():
        raise EngineError(f"`{archive.name}` holds no llama.cpp.")


@dataclass(frozen=True, slots=True)
class Programs:
    """A runner that starts llama.cpp's benchmark programs anew for each measurement; both warm up by themselves."""

    peer: LlamaCpp
    path: Path
    threads: int

    def measure(self, workload: Workload) -> list[float]:
        """Seconds of each run. Errors: EngineError when a program fails or says something else."""
        if workload.streams == 1:
            command: list[str | Path] = [self.peer.program("llama-bench"), *bench_options(workload), *self._shared()]
            return bench_seconds(run_program(command))
        command = [self.peer.program("llama-batched-bench"), *batched_options(workload), *self._shared()]
        return [batched_seconds(run_program(command), workload) for _ in range(workload.repeat)]

    def close(self) -> None:
        """Nothing stays."""

    def _shared(self) -> Sequence[str | Path]:
        return ["-m", self.path, "-t", str(self.threads), "-fa", "on"]


def bench_options(workload: Workload) -> list[str]:
    """llama-bench's options: `-d` is the context before the timed tokens."""
    timed = ["-p", str(workload.prompt_tokens), "-n", "0"]
    if workload.kind == "decode":
        timed = ["-p", "0", "-n", str(workload.new_tokens), "-d", str(workload.prompt_tokens)]
    return [*timed, "-r", str(workload.repeat), "-o", "json"]


def batched_options(workload: Workload) -> list[str]:
    """llama-batched-bench's options; prompts are not shared, and each stream has a cache of its own."""
    sizes = ["-npp", str(workload.prompt_tokens), "-ntg", str(workload.new_tokens), "-npl", str(workload.streams)]
    return [*sizes, "-c", str(total_context(workload)), "--no-kv-unified", "--output-format", "jsonl"]


def total_context(workload: Workload) -> int:
    """The context of all streams together."""
    each = workload.prompt_tokens + workload.new_tokens
    return workload.streams * -(-each // SLOT_TOKENS) * SLOT_TOKENS


def server_command(peer: LlamaCpp, path: Path, workload: Workload, threads: int, port: int) -> list[str | Path]:
    """llama-server with a slot per chat, no cache of old prompts, and room for a template around each prompt."""
    roomy = Workload("", workload.kind, workload.streams, workload.prompt_tokens + SLOT_TOKENS // 2, workload.new_tokens)
    sizes = ["-t", str(threads), "-tb", str(threads), "-np", str(workload.streams), "-c", str(total_context(roomy))]
    options = ["-fa", "on", "--no-kv-unified", "--cache-ram", "0", "--host", "127.0.0.1", "--port", str(port)]
    return [peer.program("llama-server"), "-m", path, *sizes, *options]


def bench_seconds(output: str) -> list[float]:
    """The seconds of each run in llama-bench's JSON. Errors: EngineError when it is something else"""
    try:
        (row,) = json.loads(output)
        return [int(nanoseconds) / 1e9 for nanoseconds in row["samples_ns"]]
    except (ValueError, KeyError, TypeError):
        raise EngineError(f"`llama-bench` answered `{output[:200]}`; expected a JSON row with `samples_ns`.") from None


def batched_seconds(output: str, workload: Workload) -> float:
    """The seconds of new tokens, or of a whole run for `chats`, in llama-batched-bench's JSON. Errors: EngineError as above"""
    try:
        (row,) = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
        return float(row["t_tg" if workload.kind == "decode" else "t"])
    except (ValueError, KeyError, TypeError):
        raise EngineError(f"`llama-batched-bench` answered `{output[:200]}`; expected a JSON line with its times.") from None
