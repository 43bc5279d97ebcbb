"""The cores that this process may use: those of its affinity mask, at most the quota of its control groups.

The hardware threads of a core count as one: they share its arithmetic units. Open MPI counts slots in the same way.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from malt.launch.machine.cgroups import MOUNT, folders, membership, read

TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """Return how many ranks or threads can compute at the same time, at least 1. Local."""
    quota = min(_quotas(MOUNT, membership()), default=math.inf)
    return max(1, int(min(_physical(os.sched_getaffinity(0), TOPOLOGY), quota)))


def _physical(processors: set[int], topology: Path) -> int:
    """The number of cores with one of `processors`. A processor with unknown siblings counts as a core."""
    siblings = {n: read(topology / f"cpu{n}" / "topology" / "thread_siblings_list") or str(n) for n in processors}
    return len(set(siblings.values()))


def _quotas(mount: Path, groups: str) -> list[float]:
    """The quotas of the control groups of this process, in cores."""
    return [quota for folder in folders(mount, groups, "cpu") for quota in _quota(folder)]


def _quota(folder: Path) -> list[float]:
    """The quota of one group, in cores; empty if it sets none."""
    version2 = read(folder / "cpu.max").split()
    version1 = [read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    for quota, period in (version2 or ["", ""], version1):
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # no bound: "max" in version 2, -1 in version 1
            return [int(quota) / int(period)]
    return []
