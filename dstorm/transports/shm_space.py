"""What /dev/shm can hold: MPI backs the windows of ranks that share a host with it, and dies of SIGBUS where it is
too small."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

_FOLDER = "/dev/shm"
_OF_MPI = ("sm_segment.", "osc_sm.", "vader_segment.", "mpich_shm_")
_LARGEST_SHARE_NBYTES = 1 << 36


def free_nbytes() -> int:
    """Bytes that /dev/shm has left; where there is no such folder, a number that nothing exceeds. Local."""
    try:
        room = os.statvfs(_FOLDER)
    except OSError:
        return 2**62
    return room.f_bavail * room.f_frsize


def share_nbytes(ranks: int, free: int | None = None) -> int:
    """What each of so many ranks of this host may take for all its vectors, where that is settled at the start: half
    of what /dev/shm has left, divided among them, in whole pages. `free`: of another host, what it has left. Local."""
    share = (free_nbytes() if free is None else free) // (2 * ranks)
    return min(share // mmap.PAGESIZE * mmap.PAGESIZE, _LARGEST_SHARE_NBYTES)


def file_of(job: str, session: str) -> Path:
    """The file that the ranks of a session share. `job`: a name of it that no other job has. Pure."""
    return Path(_FOLDER, f"{job}-{session}")


def files_of(job: str) -> list[Path]:
    """The files of its sessions that were not removed. Local."""
    return list(Path(_FOLDER).glob(f"{job}-*"))


def host_nbytes() -> int:
    """Bytes of memory that this host has; where the system does not tell, a number that nothing exceeds. Local."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**62


def mapped(process: int | str = "self") -> list[str]:
    """The files of MPI in /dev/shm that a process has mapped (Linux; elsewhere none are found). Local."""
    try:
        with open(f"/proc/{process}/maps") as file:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if _FOLDER in line}
    except OSError:
        return []
    return sorted(path for path in paths if os.path.basename(path).startswith(_OF_MPI) and os.path.exists(path))


def check(hosts: Sequence[str], wanted: Sequence[int], free: Sequence[int]) -> None:
    """Refuse windows of `wanted` bytes by rank, where the ranks of a host together want more than it has free.

    Pure: all ranks, given the same figures, agree. MemoryError names the host and both figures.
    """
    for host in dict.fromkeys(hosts):
        ranks = [rank for rank, name in enumerate(hosts) if name == host]
        need, room = sum(wanted[rank] for rank in ranks), min(free[rank] for rank in ranks)
        if need > room:
            raise MemoryError(
                f"host {host.rpartition('/')[0]}: {len(ranks)} ranks need {_mb(need)} of {_FOLDER} for this vector, "
                f"and {_mb(room)} are free: use a smaller capacity or depth, a sparser graph, or a larger {_FOLDER} "
                "(docker run --shm-size)"
            )


def check_host(what: str, nbytes: int) -> None:
    """MemoryError, with both figures, where `what` takes more than this host has. Local.

    Asked before memory is taken: a system that overcommits gives what it does not have, and kills who uses it.
    """
    if nbytes > host_nbytes():
        raise MemoryError(f"{what} takes {_mb(nbytes)}, and this host has {_mb(host_nbytes())}")


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
