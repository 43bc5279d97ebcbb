"""The space in /dev/shm. Windows of ranks on one host lie there; MPI ends with SIGBUS where it is too small."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from dstorm.words import count

_FOLDER = "/dev/shm"
_LARGEST_SHARE_NBYTES = 1 << 36


def free_nbytes() -> int:
    """Free bytes of /dev/shm; where there is no such folder, a number that nothing exceeds. Local."""
    try:
        state = os.statvfs(_FOLDER)
    except OSError:
        return 2**62
    return state.f_bavail * state.f_frsize


def share_nbytes(ranks: int, free: int | None = None) -> int:
    """Bytes that each of `ranks` ranks of a host gets for all its vectors, where that is fixed at the start. Local.

    They share half of the free bytes of /dev/shm, in whole pages. `free`: the free bytes of another host.
    """
    share = (free_nbytes() if free is None else free) // (2 * ranks)
    return min(share // mmap.PAGESIZE * mmap.PAGESIZE, _LARGEST_SHARE_NBYTES)


def file_of(job: str, session: str) -> Path:
    """The file that the ranks of a session share. `job`: a name that no other job has. Pure."""
    return Path(_FOLDER, f"{job}-{session}")


def files_of(job: str) -> list[Path]:
    """The files of the sessions of a job that were not removed. Local."""
    return list(Path(_FOLDER).glob(f"{job}-*"))


def host_nbytes() -> int:
    """Bytes of memory of this host; where the system does not report it, a number that nothing exceeds. Local."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**62


def check(hosts: Sequence[str], wanted: Sequence[int], free: Sequence[int], is_shared: bool = True) -> None:
    """Raise MemoryError where the ranks of a host together want more than the host has free. Pure.

    `hosts`, `wanted`, `free`: the host, the bytes of the window and the free bytes, by rank. Ranks that are given the
    same values agree. The error names the host and both sizes. `is_shared`: whether these are bytes of /dev/shm.
    """
    where, more = (_FOLDER, f"{_FOLDER} (docker run --shm-size)") if is_shared else ("memory", "memory")
    for host in dict.fromkeys(hosts):
        ranks = [rank for rank, name in enumerate(hosts) if name == host]
        need, left = sum(wanted[rank] for rank in ranks), min(free[rank] for rank in ranks)
        if need > left:
            raise MemoryError(
                f"host {host.rpartition('/')[0]}: for {count(len(ranks), 'rank')} this vector needs {_mb(need)} of "
                f"{where}, and {_mb(left)} are free: use a smaller capacity or depth, a sparser graph, or a larger "
                f"{more}"
            )


def check_host(what: str, nbytes: int) -> None:
    """Raise MemoryError, with both sizes, where `what` takes more memory than this host has. Local.

    Call it before memory is taken: a system that overcommits gives memory that it does not have, and kills the process
    that uses it.
    """
    if nbytes > host_nbytes():
        raise MemoryError(f"{what} takes {_mb(nbytes)}, and this host has {_mb(host_nbytes())}")


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
