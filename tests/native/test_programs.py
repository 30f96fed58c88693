"""The C++ tests of native/tests: built by CMake into build/native-tests, one pytest case a program.

The one idea: what needs no Python is tested without it, down to single kernels; here only the exit code and the printed claims count.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "native" / "tests").glob("test_*.cpp"))
BUILD_TIMEOUT_S = 600
MAX_SPILLS = 5
"""Vector registers that a linear kernel may keep on the stack: scales of k types. A kernel whose sums live in memory has dozens."""


def build(folder: str, *options: str) -> Path:
    """Build folder with the test programs, up to date."""
    path = ROOT / "build" / folder
    cmake = Path(sys.executable).parent / "cmake"
    definitions = [f"-D{option}" for option in ("PACELINE_TESTS=ON", "PACELINE_MODULE=OFF", *options)]
    for arguments in (["-S", str(ROOT), "-B", str(path), *definitions], ["--build", str(path), "--parallel", "2"]):
        done = subprocess.run([cmake, *arguments], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return path


def run(program: Path) -> None:
    """Run a test program; its output is the failure's text."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the built programs."""
    return build("native-tests")


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_holds_its_claims(programs: Path, name: str) -> None:
    run(programs / name)


@pytest.mark.slow
@pytest.mark.timeout(3 * BUILD_TIMEOUT_S)
def test_programs_run_clean_under_sanitizers() -> None:
    folder = build("native-sanitized", "PACELINE_SANITIZE=ON")
    for name in PROGRAMS:
        run(folder / name)


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the AVX-512 kernels are built on x86-64 only")
def test_linear_kernels_keep_their_sums_in_registers(programs: Path) -> None:
    """Compilers that fail to unroll a loop over the accumulators leave them in memory, at half the speed."""
    compiled = programs / "CMakeFiles/target_avx512_vnni.dir/native/targets/avx512_vnni/linear.cpp.o"
    listing = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", compiled], capture_output=True, text=True, check=True).stdout
    spills: Counter[str] = Counter()
    kernel = ""
    for line in listing.splitlines():
        if header := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            kernel = header[1] if "kernels::run_" in header[1] and "_pass<" in header[1] else ""
            spills[kernel] += 0
        elif kernel and re.search(r"vmov\w+\s+%zmm\d+,.*\(%r[sb]p", line):
            spills[kernel] += 1
    del spills[""]
    assert len(spills) >= 8 * 8, "eight types, eight shapes"
    assert {name: count for name, count in spills.items() if count > MAX_SPILLS} == {}
