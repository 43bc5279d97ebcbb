"""What /dev/shm can hold: MPI backs the windows of ranks that share a host with it, and dies of SIGBUS where it is
too small."""

from __future__ import annotations

import os
from collections.abc import Sequence

_FOLDER = "/dev/shm"


def free_nbytes() -> int:
    """Bytes that /dev/shm has left; where there is no such folder, a number that nothing exceeds. Local."""
    try:
        room = os.statvfs(_FOLDER)
    except OSError:
        return 2**62
    return room.f_bavail * room.f_frsize


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


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
