"""The cores that this process may keep busy: those of its affinity mask, at most its control group's share of time.

Hardware threads of one core count once: they share its arithmetic units, and Open MPI counts its slots so too.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """How many ranks or threads can compute at the same time without taking turns; at least 1. Local."""
    quota = min(_quotas(CGROUPS, _read(Path("/proc/self/cgroup"))), default=math.inf)
    return max(1, int(min(_physical(_allowed(), TOPOLOGY), quota)))


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical(processors: set[int], topology: Path) -> int:
    """Cores that have one of `processors`; a processor of unknown siblings counts as a core."""
    siblings = {n: _read(topology / f"cpu{n}" / "topology" / "thread_siblings_list") or str(n) for n in processors}
    return len(set(siblings.values()))


def _quotas(mount: Path, membership: str) -> list[float]:
    """What cgroups, version 1 or 2, grant this process and the groups it is in, in cores.

    `membership`: the lines `id:controllers:path` of /proc/self/cgroup. Inside a container the path can be one of the
    host's, which is not there: then the mount itself is the container's own group.
    """
    quotas = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = mount / "cpu" if controllers else mount
        for folder in (group, *(group.joinpath(*path.split("/")[1:end]) for end in range(2, path.count("/") + 2))):
            quotas += _quota(folder)
    return quotas


def _quota(folder: Path) -> list[float]:
    """The cores that this one group grants; empty where it sets no bound."""
    version2 = _read(folder / "cpu.max").split()
    version1 = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    for quota, period in (version2 or ["", ""], version1):
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # no bound: "max" in version 2, -1 in version 1
            return [int(quota) / int(period)]
    return []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
