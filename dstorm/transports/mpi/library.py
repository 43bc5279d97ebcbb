"""The MPI library: its name, whether it can be used, its processes. Importing this loads it and initializes MPI."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpi4py import MPI

from dstorm.queues.waits.waiting import yield_core

_is_finalize_noticed = False
_under_way: list[MPI.Request] = []
"""What signals have left under way: requests hold the memory that MPI may still write to."""


def library() -> str:
    """The name and version of the MPI library, for example "Open MPI 5.0.11" or "MPICH 5.0.2". Local."""
    words = MPI.Get_library_version().replace(",", " ").replace("Version:", "").split()
    version = next(place for place, word in enumerate(words) if word.lstrip("v")[:1].isdigit())
    return " ".join([*words[:version], words[version].lstrip("v")])


def sends_at_once() -> bool:
    """Return whether a short Put leaves without a flush, while threads call MPI. Local.

    MPI promises no more than that it has arrived after a flush (MPI-4.1, 12.7.3), and older libraries keep it until
    then, to send several at once.
    """
    name, version = MPI.get_vendor()
    return version >= {"Open MPI": (5,), "MPICH": (4,)}.get(name, (math.inf,))


def check_usable() -> None:
    """Raise RuntimeError, with the remedy, where MPI is not initialized or has been finalized. Local."""
    if not MPI.Is_initialized():
        raise RuntimeError(
            "MPI is not initialized, as mpi4py.rc.initialize is False: call MPI.Init_thread() before the first call of "
            "malt, or leave rc.initialize as it is"
        )
    if MPI.Is_finalized():
        raise RuntimeError("MPI has been finalized, and no session can begin: let MPI.Finalize() be the last call")


def before_finalize(call: Callable[[], None]) -> None:
    """Have `call()` run when the program calls MPI.Finalize, while MPI still works (MPI-4.1, 11.2.4). Local.

    It does not run where mpi4py calls MPI.Finalize after the end of the interpreter. Only the first `call` counts.
    """
    global _is_finalize_noticed
    if not _is_finalize_noticed:
        _is_finalize_noticed = True
        MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=lambda *_: call()), True)


def members(comm: MPI.Intracomm) -> tuple[int, ...]:
    """The ranks in MPI.COMM_WORLD of the members of `comm`, in the order of `comm`. Local."""
    group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    found = MPI.Group.Translate_ranks(group, range(comm.size), world)
    group.Free()
    world.Free()
    return tuple(found)


def wait_for(*requests: MPI.Request) -> None:
    """Return once all of these have completed. Local.

    Meanwhile other ranks of this host get the core, which waits of the library itself may keep from them. A signal may
    end the wait.
    """
    polls = 0
    try:
        while not MPI.Request.Testall(requests):
            yield_core(polls)
            polls += 1
    except BaseException:
        _under_way.extend(requests)
        raise
