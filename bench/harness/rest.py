"""Whether the machine is at rest: the share of its cores that other programs have while something is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Others:
    """What programs that this process did not start take of the cores, from the constructor on. Local."""

    def __init__(self) -> None:
        self._busy_s, self._since = self._others_s(), time.monotonic()

    def share(self) -> float:
        """Their share of the time of all cores until now. Jobs of this process must have ended."""
        seconds = (time.monotonic() - self._since) * (os.cpu_count() or 1)
        return max(0.0, (self._others_s() - self._busy_s) / seconds)

    @staticmethod
    def _others_s() -> float:
        """Seconds of all cores since the system's start, but idle ones, less those of this process and its children."""
        user, nice, system, _idle, _wait, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
        mine = os.times()
        ours = mine.user + mine.system + mine.children_user + mine.children_system
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - ours
