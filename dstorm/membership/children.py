"""The process of a rank, and its children, by fork, spawn, forkserver or subprocess.

MPI knows one process a rank. A child that called MPI, or only MPI_Finalize at its exit, would act as its parent or wait
for ever. So the environment, which children inherit, names the process of the rank. Another process that finds this
name is a child.

A forked child closes its copies of connections: the end of a rank shows to others only when the last copy is closed.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections.abc import MutableMapping

from dstorm.membership.processes import this_process

RANK_PROCESS = "MALT_RANK_PROCESS"
"""The variable that names it: the rank, the number of its process, and the start time in clock ticks."""
RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MALT_RANK")
"""The variables in which mpiexec, or the launcher, gives a process its rank."""

_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_has_inherited_mpi = False


def claim(environ: MutableMapping[str, str], rank: int | None = None) -> None:
    """Name this process in `environ` as that of `rank`, by default the rank that mpiexec has given it. Local.

    It does nothing in a child, or where mpiexec has given no rank.
    """
    own_rank = next((environ[name] for name in RANKS if name in environ), None) if rank is None else str(rank)
    if own_rank is not None and RANK_PROCESS not in environ:
        environ[RANK_PROCESS] = f"{own_rank} {os.getpid()} {this_process().started}"


def refusal() -> str:
    """Return why this process cannot take part in a session, where it is a child of a rank; otherwise "". Local."""
    words = os.environ.get(RANK_PROCESS, "").split()
    if len(words) != 3 or (int(words[1]) == os.getpid() and int(words[2]) in (-1, this_process().started)):
        return ""
    return (
        f"this process is a child of rank {words[0]}, and no rank itself: make the call in rank {words[0]}, and hand "
        "the child what it needs"
    )


def has_inherited_mpi() -> bool:
    """Return whether this process was forked while MPI was loaded. It must then exit without MPI_Finalize. Local."""
    return _has_inherited_mpi


def close_in_children(connection: socket.socket) -> socket.socket:
    """Have children that are forked from now on close `connection`; return `connection`. Local."""
    _connections.add(connection)
    return connection


def _after_fork() -> None:
    global _has_inherited_mpi
    _has_inherited_mpi = "mpi4py.MPI" in sys.modules
    for connection in list(_connections):
        connection.close()


os.register_at_fork(after_in_child=_after_fork)
