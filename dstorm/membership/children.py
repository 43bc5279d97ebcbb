"""The process that is a rank, and its children: by fork, spawn, forkserver or subprocess.

MPI knows one process a rank. A child that called it would act as its parent, or wait for ever; also one that only
ended it, when its interpreter exits. So the rank's process is named in the environment, which children inherit, and
another process that finds it there is a child. What a forked one has copies of, it closes: the system tells others of
the end of a rank only when the last copy of a connection is closed.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections.abc import MutableMapping

from dstorm.membership.processes import this_process

RANK_PROCESS = "MALT_RANK_PROCESS"
"""The variable: the rank, the number of its process, and the clock tick at which that started."""
RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Where mpiexec tells a process its rank."""

_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_has_inherited_mpi = False


def claim(environ: MutableMapping[str, str], rank: int | None = None) -> None:
    """Name this process as that of `rank`, by default the one that mpiexec has made it, if any. In a child it does
    nothing. Local."""
    reports = next((environ[name] for name in RANKS if name in environ), None) if rank is None else str(rank)
    if reports is not None and RANK_PROCESS not in environ:
        environ[RANK_PROCESS] = f"{reports} {os.getpid()} {this_process().started}"


def refusal() -> str:
    """Why this process cannot take part in a session: it is a child of a rank; empty: it is none. Local."""
    words = os.environ.get(RANK_PROCESS, "").split()
    if len(words) != 3 or (int(words[1]) == os.getpid() and int(words[2]) in (-1, this_process().started)):
        return ""
    return (
        f"this process is a child of rank {words[0]}, and no rank itself: call malt in rank {words[0]}, and hand the "
        "child what it needs; a job of its own starts with malt run"
    )


def has_inherited_mpi() -> bool:
    """Whether this process was forked while MPI was loaded: it must end without MPI_Finalize. Local."""
    return _has_inherited_mpi


def close_in_children(connection: socket.socket) -> socket.socket:
    """`connection`, of which no child forked from now on keeps a copy. Local."""
    _connections.add(connection)
    return connection


def _after_fork() -> None:
    global _has_inherited_mpi
    _has_inherited_mpi = "mpi4py.MPI" in sys.modules
    for connection in list(_connections):
        connection.close()


os.register_at_fork(after_in_child=_after_fork)
