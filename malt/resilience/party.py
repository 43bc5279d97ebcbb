"""The ranks that begin a session, as MPI or the launcher numbers them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from malt.runner import reporting


class Party(NamedTuple):
    """The ranks of a session, as one of them sees them before they have met."""

    rank: int
    size: int
    members: tuple[int, ...]
    """What the launcher calls each of them."""
    library: str
    """As `Transport.library`."""
    fence: Callable[[], None]
    """As in `MappedMemory`."""
    has_mpi: bool = True
    rejoins: bool = False
    """Whether failed ranks are started again, and come back."""
    incarnation: int = 0
    """How often this one was."""


def of_mpi(comm: Any) -> Party:
    """The ranks of `comm`, a communicator of mpi4py. Local."""
    from dstorm.transports import mpi

    return Party(comm.rank, comm.size, mpi.members(comm), mpi.library(), mpi.fence())


def plain() -> Party:
    """All ranks of a job of plain processes (malt/launch/hosts/plain/starter.py). Local."""
    from dstorm.transports.mapped import fence

    size = int(os.environ[reporting.SIZE])
    return Party(
        int(reporting.rank()), size, tuple(range(size)), "no MPI", fence, has_mpi=False,
        rejoins=os.environ.get(reporting.REJOIN) == "1", incarnation=reporting.incarnation(),
    )  # fmt: skip
