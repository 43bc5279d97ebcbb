"""How much memory this host has free: of the whole machine, and of what the control groups grant. *Local.*"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from malt.launch.machine.cgroups import MOUNT, folders, membership, read

_MEMINFO: Final = Path("/proc/meminfo")
_VERSIONS: Final = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of groups of version 2 and 1: the files of the limit and of what is used, and what of that is a cache."""


def free_memory() -> int | None:
    """The bytes that all processes of this host together can still take; None where the system does not say. Local."""
    return min([*_available(read(_MEMINFO)), *_left(MOUNT, membership())], default=None)


def shown(nbytes: int) -> str:
    """As "1.2 GB"."""
    return f"{nbytes / 1e9:,.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.1f} MB"


def _available(meminfo: str) -> list[int]:
    """What the kernel takes for available, its caches included (proc_meminfo(5))."""
    return [int(kib) << 10 for kib in re.findall(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)]


def _left(mount: Path, groups: str) -> list[int]:
    """What each group that sets a limit has left."""
    left = []
    for folder in folders(mount, groups, "memory"):
        for limit, used, cache in _VERSIONS:
            texts = read(folder / limit), read(folder / used)
            if all(text.isdigit() for text in texts):  # no limit: "max" in version 2, more than there is in version 1
                cached = sum(map(int, re.findall(rf"^{cache} (\d+)$", read(folder / "memory.stat"), re.MULTILINE)))
                left.append(max(0, int(texts[0]) - max(0, int(texts[1]) - cached)))
    return left
