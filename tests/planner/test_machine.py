"""Cores and memory as a made-up /proc and /sys say."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import EngineError
from paceline.planner.machine import available_memory, cpu_name, num_cores, read_machine

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    """Make the files under `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def meminfo(available: int) -> str:
    """A /proc/meminfo."""
    return f"MemTotal:       99999999 kB\nMemFree:          100 kB\nMemAvailable:   {available // 1024} kB"


def siblings(*pairs: str) -> dict[str, str]:
    """Topology files of logical CPUs 0, 1, … with the given sibling lists."""
    return {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": pair for cpu, pair in enumerate(pairs)}


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    root = write(tmp_path, siblings("0,2", "1,3", "0,2", "1,3"))
    assert num_cores(root, frozenset({0, 1, 2, 3})) == 2
    assert num_cores(root, frozenset({1, 3})) == 1


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_cpu_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    root = write(tmp_path, siblings("0", "1", "2", "3") | {"sys/fs/cgroup/cpu.max": quota})
    assert num_cores(root, frozenset(range(4))) == cores


def test_an_old_cpu_quota_bounds_the_cores(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}
    assert num_cores(write(tmp_path, files), frozenset(range(8))) == 2


def test_a_cpu_without_topology_is_a_core(tmp_path: Path) -> None:
    assert num_cores(tmp_path, frozenset({0, 5})) == 2


def test_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert available_memory(write(tmp_path, {"proc/meminfo": meminfo(3 * GIB)})) == 3 * GIB


def test_a_containers_limit_counts_its_file_cache_as_free(tmp_path: Path) -> None:
    group = {"memory.max": str(2 * GIB), "memory.current": str(GIB), "memory.stat": f"anon 5\ninactive_file {GIB // 2}"}
    files = {"proc/meminfo": meminfo(8 * GIB)} | {f"sys/fs/cgroup/{name}": text for name, text in group.items()}
    assert available_memory(write(tmp_path, files)) == GIB + GIB // 2


def test_the_innermost_and_the_outer_groups_all_hold(tmp_path: Path) -> None:
    files = {"proc/meminfo": meminfo(8 * GIB), "proc/self/cgroup": "0::/outer/inner"}
    for group, limit in (("outer", GIB), ("outer/inner", 2 * GIB)):
        files |= {f"sys/fs/cgroup/{group}/memory.max": str(limit), f"sys/fs/cgroup/{group}/memory.current": "0"}
    assert available_memory(write(tmp_path, files)) == GIB


def test_an_old_containers_limit_holds_and_its_no_limit_is_none(tmp_path: Path) -> None:
    def files(limit: int) -> dict[str, str]:
        group = {"memory.limit_in_bytes": str(limit), "memory.usage_in_bytes": "0"}
        return {"proc/meminfo": meminfo(8 * GIB)} | {f"sys/fs/cgroup/memory/{name}": text for name, text in group.items()}

    assert available_memory(write(tmp_path, files(2**63 - 4096))) == 8 * GIB
    assert available_memory(write(tmp_path, files(GIB))) == GIB


def test_unreadable_memory_is_an_error_not_a_guess(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="MemAvailable"):
        available_memory(tmp_path)


def test_this_machine_can_be_read() -> None:
    machine = read_machine()
    assert machine.num_cores >= 1
    assert machine.memory_bytes > 0


def test_cpu_is_named_with_family_and_model(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Some CPU\n")
    assert cpu_name(tmp_path) == "Some CPU (family 26, model 2)"
    assert cpu_name(tmp_path / "none") != ""
