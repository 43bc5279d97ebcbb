"""The session: its begin, its end, and the calls about its ranks."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from dstorm import ClosedError, DeadlinePassed, MismatchedCalls
from dstorm.errors import OverlappingCalls
from dstorm.membership import children
from dstorm.words import shown
from malt.files import heartbeats
from malt.runner import exit_hooks
from malt.runner.departure import is_leaving
from malt.session.opening import check_same, claim, leave_job, opened
from malt.session.world import counters
from malt.session.world.world import DEADLINE_S, World
from malt.watch import answers
from malt.watch.metrics import TRACE
from vol import arguments

_PATIENCE_S = 5.0
"""How long malt.finalize waits for the other ranks while an exception is being handled."""

_world: World | None = None
_opening = threading.RLock()
"""Held while the first use makes the world: several threads may be the first."""
_simulated: ContextVar[World | None] = ContextVar("simulated", default=None)
"""The world of a simulated rank. Each has context variables of its own."""


def init(
    comm: Any = None, *, survive: bool = False, deadline_s: float = DEADLINE_S, suspect_after_s: float | None = None
) -> World:  # fmt: skip
    """Return the session of this process; the first call that needs one begins it. Collective at first.

    From then on, an uncaught exception in any thread, and sys.exit with a non-zero status, end the whole job.

    `comm`: an mpi4py intracommunicator, by default MPI.COMM_WORLD. If torchrun has started several processes, they are
    the ranks, without MPI. A program without an MPI library, or one that was started alone, has a single rank.
    `deadline_s`: how long a wait lasts, in seconds, after the last heartbeat of the rank that is waited for: a
    step, a step counted in a Replica, or malt.heartbeat(). Time during which this process was itself stopped, as in a
    suspended job, does not count. A later call with another deadline changes it for this rank's collective calls, and
    for vectors created from then on.

    `survive`: the job must have been started by `malt run --survive`: a rank that fails, for whatever reason, ends
    alone, and the others continue. A rank is killed if it makes no malt call for `deadline_s` while others wait for it
    and it waits for none; waits in malt.finalize are exempt. `suspect_after_s`: the heartbeat timeout. A rank that is
    stopped (SIGSTOP) for so long, by default 2 s, is killed by the ranks of its host. A rank on another host without a
    heartbeat for so long, by default 10 s or four times the longest gap so far, is marked failed, and leaves if it
    wakes up.

    ValueError: an argument is wrong, or `comm` is another than before. TypeError: `comm` is no intracommunicator, or
    `survive` no truth value. RuntimeError: mpiexec or torchrun has started the ranks, which then cannot `survive`;
    torchrun has, on several hosts, and MALT_KEY is not set, or differs; another launcher started several processes, but
    MPI sees only one, which would train alone, and MALT_ALONE is not 1; MPI is not initialized, or is finalized.
    DeadlinePassed: processes of torchrun have not come. ClosedError: this process is a child of a rank, by fork or
    otherwise. Children of a program that was started alone have a single rank.
    """
    global _world
    if suspect_after_s is not None:
        suspect_after_s = _checked_seconds("suspect_after_s", suspect_after_s)
    deadline_given = deadline_s is not DEADLINE_S
    deadline_s = _checked_seconds("deadline_s", deadline_s)
    survive = arguments.truth("survive", survive)
    current = present_world()
    if current is None:
        with _opening:
            if _world is None:  # else another thread was first
                _world = opened(comm, deadline_s, survive, suspect_after_s, _close_or_end_job)
                answers.start(counters.reader(_world))
                if TRACE in os.environ:
                    from malt.session.world import tracing

                    tracing.begin(_world)
                return _world
            current = _world
    check_same(current, comm, survive)
    if deadline_given:
        current.deadline_s = deadline_s
        current.transport.set_deadline(current.deadline_s)
    return current


def world() -> World:
    """The current world; the first use makes it. Collective at first. ClosedError: the simulated rank is finalized."""
    current = present_world()
    if current is None:
        return init()
    current.transport.attend()
    return current


def rank() -> int:
    """Return this process's rank, 0 to size() - 1. Local, once initialized."""
    return world().rank


def size() -> int:
    """Return the number of ranks. Local, once initialized."""
    return world().size


def is_lowest() -> bool:
    """Return whether this is the lowest live rank: the one that writes files and prints. Local, once initialized."""
    world().transport.poll_failures(quietly=True)  # quietly: others may be in a collective call already
    return world().is_lowest


def heartbeat() -> None:
    """Publish a heartbeat: ranks that wait for this one continue to wait. One-sided.

    Call it in work that may take longer than the session's deadline without another malt call. MALT's own long
    operations, such as reading, writing and hashing files, publish heartbeats themselves. Any thread may call it, and
    often: a call costs next to nothing. Without a session it does nothing.
    """
    current = _simulated.get() or _world
    if current is not None and not current.closed:
        current.transport.heartbeat()


def alive() -> tuple[int, ...]:
    """Return the live ranks, ascending, as far as this rank knows; by default all. Local, once initialized."""
    current = world()
    current.transport.poll_failures()  # a callback may end the session
    return current.alive


def hosts() -> tuple[str, ...]:
    """Return the host names of all ranks, by rank. Local, once initialized."""
    return tuple(world().transport.hosts)


def on_death(callback: Callable[[int], None]) -> None:
    """Call callback(rank) on this rank for each rank that fails from now on. Local, once initialized.

    The next scatter, gather, malt.shard or malt.alive calls it, in its own thread, before doing anything else. A
    collective call never does. After all callbacks, that call raises their first error, or ClosedError if they have
    closed its vector. Without survive=True no callback is ever called.

    TypeError: `callback` is not callable.
    """
    if not callable(callback):
        raise TypeError(f"malt.on_death takes a function of a rank, got {shown(callback)}")
    world().failures.on_death.append(callback)


def on_join(callback: Callable[[int], None]) -> None:
    """Call callback(rank) on this rank for each rank that comes back from now on (malt run --rejoin). Local, once
    initialized.

    It is called in the same way as the callbacks of malt.on_death. TypeError: `callback` is not callable.
    """
    if not callable(callback):
        raise TypeError(f"malt.on_join takes a function of a rank, got {shown(callback)}")
    world().failures.on_join.append(callback)


def rejoined() -> bool:
    """Return whether this process replaces one that failed, and the others have admitted it. Local, once initialized.

    They do so when it creates its first vector or Replica.
    """
    return world().has_come_back


def finalize() -> None:
    """Close the session, and free all that it holds. Collective; without a session it does nothing.

    It runs by itself when the interpreter exits, and before MPI.Finalize(). Any call after it starts a new session.
    A rank that has finished or closed all its Replicas and vectors has no deadline: it may evaluate or save for as long
    as it takes.

    While an exception is being handled, as in `finally: malt.finalize()`, the other ranks must call it within 5 s. They
    do so if all have raised; otherwise the exception ends the job. sys.exit(0) is not a failure: with survive=True the
    session is then closed, or left, when the interpreter exits.

    DeadlinePassed: ranks are missing. MismatchedCalls: ranks are in different collective calls. RuntimeError: another
    thread is in a collective call.
    """
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and exit_hooks.status_of(error) == 0:
        error = None
        if _world is not None and _world.ending.goes_on:
            return
    if error is None:
        _warn_of_unfinished()
    try:
        _close(None if error is None else _PATIENCE_S)
    except (DeadlinePassed, MismatchedCalls):
        if error is None:
            raise
        exit_hooks.end_job_for(error)  # else `finally: malt.finalize()` would wait for the others, which go on
        raise


def _warn_of_unfinished() -> None:
    """Warn, on the lowest rank, of Replicas that have trained on and were neither finished nor closed. Local."""
    current = _simulated.get() or _world
    if current is None or current.closed:
        return
    names = [replica.name for replica in current.replicas if replica.is_apart]
    if names:
        why = "neither finish() nor close() was called: every rank has a model of its own"
        current.report(f"malt: {', '.join(names)}: {why}")


def depart() -> None:
    """Leave the session in order while others go on. One-sided; without a session, and a second time, it does nothing.

    The others no longer wait for this rank on a vector. Collective calls that need it raise PeerLost there. This
    process may end in any way, but must not call MPI_Finalize, which is collective.
    """
    current = present_world()
    if current is None:
        return
    current.depart()
    if current is _world:
        exit_hooks.stand_down()


def _close(patience_s: float | None = None) -> None:
    """Close the session, if there is one. Collective."""
    global _world
    current = _simulated.get() or _world
    if current is None:
        return
    current.close(patience_s)
    if current is _world:
        exit_hooks.stand_down()
        if not current.departed:  # no session can follow one that was left: ClosedError
            _world = None


def enter_simulation(simulated: World) -> None:
    """Make `simulated` the world of this context. Local. RuntimeError: the context has one already."""
    if in_simulation():
        raise RuntimeError("malt.simulate cannot be called inside a simulated rank")
    replace_world(simulated)


def replace_world(world: World) -> None:
    """Make `world` the world of this context, whatever it was before. Local."""
    _simulated.set(world)


def in_simulation() -> bool:
    """Return whether this is a simulated rank. Local."""
    return _simulated.get() is not None


def present_world() -> World | None:
    """The world of this process or simulated rank, if there is one. Local. ClosedError: that rank is finalized."""
    simulated = _simulated.get()
    if simulated is not None:
        if simulated.closed:
            raise ClosedError("this simulated rank has called malt.finalize")
        return simulated
    return _world


def _checked_seconds(name: str, seconds: Any) -> float:
    if not isinstance(seconds, (int, float, np.number)) or isinstance(seconds, bool) or not seconds > 0:
        raise ValueError(f"{name} must be a positive number of seconds, got {shown(seconds)}")
    return float(seconds)


def _leave_to_parent() -> None:
    """Drop the session in a forked process: it belongs to the parent, as does MPI."""
    global _world, _opening
    exit_hooks.become_child()
    _opening = threading.RLock()  # another thread of the parent may have held it
    if _world is None:
        return
    is_child = bool(children.refusal())
    for vector in _world.vectors:
        vector.disown(is_child)
    if is_child:
        _world.closed = True
        _world = None


def _finalize_at_exit() -> None:
    """End the session when the interpreter exits."""
    if children.has_inherited_mpi():
        return exit_hooks.end_without_mpi()
    exit_hooks.end_job_if_failing()
    if getattr(sys, "last_type", None) is None and not is_leaving():  # else an exception is the reason
        _warn_of_unfinished()
    _close_or_end_job()
    leave_job()
    if _world is not None and _world.departed and _world.transport.size > 1:
        _world.ending.after_departure()


def _close_or_end_job() -> None:
    """Close the session before MPI ends. Collective. Where other ranks do not close it, the job ends."""
    try:
        if is_leaving():
            return depart()
        if _world is not None:
            _world.ending.close(_world, _close)
    except OverlappingCalls as error:
        exit_hooks.end_job(f"malt: {error}")
    except MismatchedCalls as error:
        if _world is not None:
            _world.ending.without_the_others(_world, error)
    except DeadlinePassed as error:  # MPI_Finalize would wait for ever
        exit_hooks.end_job(f"malt: {error}")
    except (KeyboardInterrupt, SystemExit):
        if not is_leaving():
            raise
        return depart()


claim()
heartbeats.give_by(heartbeat)
os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_finalize_at_exit)
