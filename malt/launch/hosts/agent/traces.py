"""The files that MPI makes for the ranks of this host: in /dev/shm, and of hydra. It leaves them where it is killed.

The agent is sent with this module: it imports nothing of malt.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import time

_POLL_S, _CLOSES_S = 0.1, 1.0
_CLOCKS_S = 5.0
"""By how much the clock of a file server that has the folder of a job may be ahead."""
_SHM = "/dev/shm/"
_HWLOC_OF_HYDRA = "/tmp/hydra_hwloc_xmlfile_"


def remove_traces(folder: str) -> None:
    """Remove what the job in `folder` has left of them on this host. None of its ranks runs any more.

    A file that has come since the first one in `folder`, and that no process uses, is of a rank or daemon of the job: a
    live job uses its own.
    """
    files = glob.glob(os.path.join(glob.escape(folder), "*"))
    began = min(filter(None, map(_written, files)), default=math.inf) - _CLOCKS_S
    end, left = time.monotonic() + _CLOSES_S, set[str]()
    while fresh := {path for path in _by_name() - left if _written(path) >= began}:
        processes = numbers()
        opened = list(map(_opened, processes))  # first: a process maps a file before it closes it
        left |= fresh.difference(*opened, *map(_mapped, processes))
        if time.monotonic() > end:
            break
        time.sleep(_POLL_S)
    for path in left:
        with contextlib.suppress(OSError):
            os.unlink(path)


def numbers() -> list[int]:
    """The processes of this host, by number; [] where the system has no /proc."""
    with contextlib.suppress(FileNotFoundError):
        return [int(word) for word in os.listdir("/proc") if word.isdecimal()]
    return []


def _written(path: str) -> float:
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime
    return 0.0


def _by_name() -> set[str]:
    """The files by which ranks of this host share memory, and those in which MPICH's daemons keep the topology.

    Open MPI's and MPICH's are there while a rank runs. UCX removes the name at once: one that stays is of a process
    that was killed in between. Other containers may share /dev/shm: Open MPI's names begin with that of the host.
    """
    host = os.uname().nodename.partition(".")[0]
    names = [f"{name}{host}." for name in ("sm_segment.", "osc_sm.", "vader_segment.")]
    kinds = (*names, "mpich_shm_", "ucx_shm_posix_")
    found = {_SHM + name for name in (os.listdir(_SHM) if os.path.isdir(_SHM) else ()) if name.startswith(kinds)}
    return found | set(glob.glob(f"{_HWLOC_OF_HYDRA}*"))


def _opened(process: int) -> set[str]:
    found, folder = set(), f"/proc/{process}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(os.path.join(folder, number)))
    return found


def _mapped(process: int) -> set[str]:
    """The files in shared memory that a process has mapped."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps") as file:
        return {line.split(None, 5)[5].rstrip("\n") for line in file if _SHM in line}
    return set()
