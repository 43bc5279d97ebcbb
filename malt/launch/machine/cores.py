"""The cores that this process may keep busy: those of its affinity mask, at most its control group's share of time.

Hardware threads of one core count once: they share its arithmetic units, and Open MPI counts its slots so too.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from malt.launch.machine.cgroups import MOUNT, folders, membership, read

TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """How many ranks or threads can compute at the same time without taking turns; at least 1. Local."""
    quota = min(_quotas(MOUNT, membership()), default=math.inf)
    return max(1, int(min(_physical(_allowed(), TOPOLOGY), quota)))


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical(processors: set[int], topology: Path) -> int:
    """Cores that have one of `processors`; a processor of unknown siblings counts as a core."""
    siblings = {n: read(topology / f"cpu{n}" / "topology" / "thread_siblings_list") or str(n) for n in processors}
    return len(set(siblings.values()))


def _quotas(mount: Path, groups: str) -> list[float]:
    """What the control groups of this process grant, in cores."""
    return [quota for folder in folders(mount, groups, "cpu") for quota in _quota(folder)]


def _quota(folder: Path) -> list[float]:
    """The cores that this one group grants; empty where it sets no bound."""
    version2 = read(folder / "cpu.max").split()
    version1 = [read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    for quota, period in (version2 or ["", ""], version1):
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # no bound: "max" in version 2, -1 in version 1
            return [int(quota) / int(period)]
    return []
