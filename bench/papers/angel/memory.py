"""The most memory that this process has had since some moment, as Linux counts it: /proc/self. Local."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_SELF = Path("/proc/self")
_FORGET_THE_PEAK = "5"


class Peak:
    """The most memory from the constructor on, in MB: pages of this process, and those that it shares with others."""

    def __init__(self) -> None:
        with suppress(OSError):  # where it is refused the peak is that of the whole process
            (_SELF / "clear_refs").write_text(_FORGET_THE_PEAK)
        self.before = _megabytes("VmRSS")
        """The memory at that moment."""

    def most(self) -> float:
        """The most until now."""
        return _megabytes("VmHWM")


def _megabytes(name: str) -> float:
    lines = (_SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
