"""The memory that is free on this host: of the machine, and within the limits of the control groups."""

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
"""For control groups of version 2 and 1: the files of the limit and of the usage, and the cache in memory.stat."""


def free_memory() -> int | None:
    """Return the bytes that the processes of this host together can still allocate, or None if unknown. Local."""
    return min([*_available(read(_MEMINFO)), *_left(MOUNT, membership())], default=None)


def shown(nbytes: int) -> str:
    """Return `nbytes` as text: "1.2 GB". Pure."""
    return f"{nbytes / 1e9:,.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.1f} MB"


def _available(meminfo: str) -> list[int]:
    """MemAvailable in bytes, which includes caches (proc_meminfo(5)); empty if it is not there."""
    return [int(kib) << 10 for kib in re.findall(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)]


def _left(mount: Path, groups: str) -> list[int]:
    """The bytes that are left in each group with a limit."""
    left = []
    for folder in folders(mount, groups, "memory"):
        for limit, used, cache in _VERSIONS:
            texts = read(folder / limit), read(folder / used)
            if all(text.isdigit() for text in texts):  # no limit: "max" in version 2, more than there is in version 1
                cached = sum(map(int, re.findall(rf"^{cache} (\d+)$", read(folder / "memory.stat"), re.MULTILINE)))
                left.append(max(0, int(texts[0]) - max(0, int(texts[1]) - cached)))
    return left
