"""What the ranks of a job have said of themselves to the launcher, as files in its folder.

status-<n>       a rank has failed, and the job ends with status n
started-<rank>   the number of its process               where ranks may die: these and
ready-<rank>     it has come to the session              from here on the others can go on without it
memory-<rank>    files of /dev/shm that it has mapped
finished-<rank>  it has ended well
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def failed_with(folder: Path) -> int | None:
    """The status that a rank has failed with; None: none has."""
    statuses = (path.name.removeprefix("status-") for path in folder.glob("status-*"))
    return min((int(status) for status in statuses if status.isdecimal()), default=None)


class RollCall:
    """How a job ends whose ranks may die."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks_of_job = folder, ranks
        self._status: int | None = None

    def status(self) -> int | None:
        """0: those who did not die have ended well; another: the job has failed, or nobody is left; None: neither, yet.
        Says, once, who died too early for the others to go on."""
        if self._status is None:
            self._status = self._found()
        return self._status

    def clean(self) -> None:
        """Remove what Open MPI leaves in /dev/shm where ranks end without it. Call it after the end of the job."""
        for path in self._folder.glob("memory-*"):
            for name in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(OSError):
                    os.unlink(name)

    def _found(self) -> int | None:
        status = failed_with(self._folder)
        if status is not None:
            return status
        started, finished = self._ranks("started"), self._ranks("finished")
        gone = {rank for rank in started - finished if self._is_gone(rank)}
        if gone and not self._ranks("ready"):
            names = ", ".join(sorted(gone))
            print(f"malt run: rank {names} died before the session began: ending the job", file=sys.stderr, flush=True)
            return 1
        if len(finished | gone) < self._ranks_of_job:
            return None
        return 0 if finished else 1

    def _ranks(self, kind: str) -> set[str]:
        words = (path.name.removeprefix(f"{kind}-") for path in self._folder.glob(f"{kind}-*"))
        return {word for word in words if word.isdecimal()}

    def _is_gone(self, rank: str) -> bool:
        """Whether the process that started as `rank` has ended."""
        number = (self._folder / f"started-{rank}").read_text()
        try:
            return (Path("/proc") / number / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True
