"""The files that MPI makes for the ranks of this host. The agent is sent with it: it imports of malt only what that
is sent with."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import time

from malt.launch.hosts.agent.closing import LOCK
from malt.runner.events import Kind, Stream

_POLL_S, _CLOSES_S = 0.1, 1.0
_NOTE_S, _RARELY_S, _SHARE = 0.5, 5.0, 0.05
"""How long two looks are apart, at first and at most; in between it is a share of the time so far."""
_EARLIER_S = 5.0
"""How long before the first rank begins a daemon of mpiexec may have made its file."""
_SHM, _SHM_OF_MPI = "/dev/shm/", ("sm_segment.", "osc_sm.", "vader_segment.", "mpich_shm_", "ucx_shm_posix_")
_HWLOC_OF_HYDRA = "/tmp/hydra_hwloc_xmlfile_"


class Traces:
    """The files that MPI makes for ranks of this host, and leaves where it is killed: in /dev/shm, and of hydra."""

    def __init__(self, folder: str) -> None:
        self._reports, self._noted_at, self._began = Stream(folder), 0.0, time.monotonic()
        self._paths: set[str] = set()
        self._before = _older(folder, _by_name())

    def note(self) -> None:
        """Look which files there are, now and then. The ranks have reported their processes in the folder."""
        now = time.monotonic()
        if now - self._noted_at < min(max(_NOTE_S, _SHARE * (now - self._began)), _RARELY_S):
            return
        self._noted_at = now
        for text in self._reports.read().texts(Kind.STARTED).values():
            self.note_process(int(text.split()[0]))

    def note_process(self, process: int) -> None:
        """Look which files a process has, and the daemon that started it."""
        self._paths |= _mapped(process)
        with contextlib.suppress(OSError):
            self._paths |= {path for path in _opened(int(stat(str(process))[1])) if path.startswith(_HWLOC_OF_HYDRA)}

    def remove(self) -> None:
        """Remove what is left of them. No rank runs any more.

        A file that has come during the job, and that no process uses, is of a rank or daemon that ended before it was
        looked at: a live job uses its own.
        """
        end = time.monotonic() + _CLOSES_S
        while fresh := _by_name() - self._before - self._paths:
            processes = [int(word) for word in os.listdir("/proc") if word.isdecimal()]
            opened = list(map(_opened, processes))  # first: a process maps a file before it closes it
            self._paths |= fresh.difference(*opened, *map(_mapped, processes))
            if time.monotonic() > end:
                break
            time.sleep(_POLL_S)
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


def stat(process: str) -> list[str]:
    """The fields of /proc/PROCESS/stat after the name. OSError: it has ended."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _older(folder: str, paths: set[str]) -> set[str]:
    """Those of `paths` that were there before the job in `folder`: all, if no rank has begun."""
    locks = os.path.join(folder, LOCK.format("*"))  # a rank makes it, and never writes to it
    began = min(map(_written, glob.glob(locks)), default=math.inf)
    return {path for path in paths if _written(path) < began - _EARLIER_S}


def _written(path: str) -> float:
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0


def _by_name() -> set[str]:
    """The files by which ranks of MPICH and of UCX share memory, and those in which MPICH's daemons keep the topology.

    MPICH keeps its file while it runs. UCX removes the name at once: one that stays is of a process that was killed in
    between.
    """
    return {
        path
        for name in (f"{_SHM}mpich_shm_", f"{_SHM}ucx_shm_posix_", _HWLOC_OF_HYDRA)
        for path in glob.glob(f"{name}*")
    }


def _opened(process: int) -> set[str]:
    found, folder = set(), f"/proc/{process}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(os.path.join(folder, number)))
    return found


def _mapped(process: int) -> set[str]:
    """The files of MPI in shared memory that a process has mapped: others are the user's."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps") as file:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in file if _SHM in line}
        return {path for path in paths if os.path.basename(path).startswith(_SHM_OF_MPI) and os.path.exists(path)}
    return set()
