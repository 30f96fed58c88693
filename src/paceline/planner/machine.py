"""What this machine has: cores and memory, as the kernel and the container's limits say. Read, never guessed.

The one idea: the smallest of all limits holds: CPU affinity, the container's CPU quota, free memory, the container's memory.
"""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import EngineError

CPU_TOPOLOGY = Path("sys/devices/system/cpu")
CGROUP = Path("sys/fs/cgroup")
NO_LIMIT = 1 << 60
"""Container limits above this mean none (version 1 writes a page-rounded 2⁶³)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This process's share of the machine."""

    num_cores: int
    """Physical cores that this process may run on, its CPU quota rounded down (at least 1)."""
    memory_bytes: int
    """Memory that can be taken without swapping or meeting the container's limit."""


def read_machine(root: Path = Path("/")) -> Machine:
    """Read the machine that runs this process; `root` is where /proc and /sys lie. Errors: EngineError when memory cannot be read."""
    return Machine(num_cores(root, frozenset(os.sched_getaffinity(0))), available_memory(root))


def num_cores(root: Path, allowed: frozenset[int]) -> int:
    """Physical cores among the allowed logical ones, within the CPU quota."""
    siblings = {_siblings(root, cpu) for cpu in allowed}
    quota = cpu_quota(root)
    return len(siblings) if quota is None else max(1, min(len(siblings), math.floor(quota)))


def cpu_quota(root: Path) -> float | None:
    """CPUs that the container may use, or None: no quota."""
    for group in _groups(root, "cpu"):
        if text := _read(group / "cpu.max"):
            quota, period = text.split()
            return None if quota == "max" else int(quota) / int(period)
        if (old_quota := _read(group / "cpu.cfs_quota_us")) and (old_period := _read(group / "cpu.cfs_period_us")):
            return None if int(old_quota) < 0 else int(old_quota) / int(old_period)
    return None


def available_memory(root: Path) -> int:
    """Bytes that can be taken: the kernel's MemAvailable, or what the container has left when that is less.

    Errors:  EngineError when /proc/meminfo does not say
    """
    lines = (_read(root / "proc/meminfo") or "").splitlines()
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    if free is None:
        raise EngineError("`/proc/meminfo` does not say MemAvailable; give `num_blocks` instead of leaving memory to `auto`.")
    limits = [left for group in _groups(root, "memory") if (left := _left(group)) is not None]
    return min([free, *limits])


def cpu_name(root: Path) -> str:
    """The processor's name, with family and model where the kernel tells them (virtual machines hide the name)."""
    text = _read(root / "proc/cpuinfo")
    if text is None:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    name = fields.get("model name") or platform.machine()
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields.get('model', '?')})"
    return name


def _siblings(root: Path, cpu: int) -> str:
    """The logical CPUs of one physical core, as the kernel lists them; a CPU without topology counts as a core."""
    return _read(root / CPU_TOPOLOGY / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _groups(root: Path, controller: str) -> list[Path]:
    """The control groups of this process, innermost first: version 2's, then version 1's of that controller."""
    inner: list[Path] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            inner += _and_parents(root / CGROUP, path)
        elif controller in controllers.split(","):
            inner += _and_parents(root / CGROUP / controller, path)
    return [*inner, root / CGROUP, root / CGROUP / controller]


def _and_parents(mount: Path, path: str) -> list[Path]:
    group = mount / path.strip("/")
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(mount)]


def _left(group: Path) -> int | None:
    """What a control group has left of its memory, reclaimable file cache counted as free; None: no limit."""
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _read(group / limit_name), _read(group / usage_name)
        if limit is None or usage is None or limit == "max" or int(limit) >= NO_LIMIT:
            continue
        stat = dict(line.split() for line in (_read(group / "memory.stat") or "").splitlines())
        return max(0, int(limit) - int(usage) + int(stat.get(cache_name, 0)))
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
