"""The begin of a session of plain processes, and the reports about ranks that have failed.

Where `malt run --survive` has started them the others go on then. Where torchrun has the job ends, as under mpiexec.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from dstorm.errors import Refused
from dstorm.membership.processes import ProcessMonitor, this_process
from dstorm.membership.resilient import SurvivingTransport
from dstorm.transports import shm_space
from dstorm.transports.mapped import fence
from dstorm.transports.shm import SharedMemory
from dstorm.transports.solo import LoneTransport
from dstorm.view import Change, View
from dstorm.waits.stopwatch import Stopwatch
from dstorm.words import count
from malt.runner import departure, exit_hooks, reporting, roster
from malt.runner.departure import is_leaving
from malt.runner.events import History, Kind, Stream
from malt.runner.program import JOB_DIR
from malt.runner.reporting import is_connected
from malt.session.resilience import sessions
from malt.session.resilience.process_group import SESSION, ProcessGroup, is_of_torchrun, missing, process_group
from malt.session.resilience.rendezvous import Rendezvous
from malt.session.world.creations import Newcomer, offer
from malt.session.world.crew import Crew
from malt.session.world.endings import PlainEnding, TolerantEnding
from malt.session.world.world import World
from malt.watch.processes import processes

_sessions = 0
"""The number of sessions begun so far."""
_views: list[View] = []
"""The membership views of the sessions so far."""

_POLL_S = 0.002
_UNHEARD = "nothing is heard of it: it has ended, or is cut off"
_LAUNCHER_S = 5.0
"""How long a rank leaves it to its launcher to end it where another has failed: the launcher then names that one."""


def begin(deadline_s: float, suspect_after_s: float | None) -> World:
    """A new session of all ranks of a job of plain processes. Collective.

    DeadlinePassed: ranks are missing. MemoryError: shared memory is short.
    """
    made, monitor = transport(deadline_s, suspect_after_s)
    exit_hooks.leave_on_failure(end_job if is_of_torchrun() else made.close)
    if is_of_torchrun():
        opened = World(made, deadline_s, ending=PlainEnding())
        reporting.report(Kind.READY)
        made.view.subscribe(lambda change: end_with(opened, change))
        return opened
    over = sessions.OVER.format(SESSION.format(_sessions))
    opened = World(made, deadline_s, ending=TolerantEnding(partial(reporting.publish, over, "")))
    _add_crew(opened, made)
    if made.returns is not None:
        made.returns.offer = partial(offer, opened)
        opened.newcomer = Newcomer(made, partial(reporting.report, Kind.READY)) if opened.is_outside else None
    if opened.newcomer is None:  # else its session begins once the others admit it
        reporting.report(Kind.READY)
    made.view.subscribe(lambda change: report(opened, made, change, monitor))
    return opened


def _add_crew(world: World, transport: SurvivingTransport) -> None:
    """Give `world` a crew, where ranks come and go. Local."""
    ranks = process_group()
    if ranks.roster is not None:
        world.crew = Crew(os.environ[JOB_DIR], transport, ranks.incarnation, ranks.roster, world.is_outside, _sessions)
        world.failures.gone.update(range(ranks.first, ranks.size))
        if world.crew.is_elastic:
            transport.duties.append(world.crew.look)
            departure.depart_by(partial(_depart, world, world.crew))


def _depart(world: World, crew: Crew) -> bool:
    """Have this rank leave in order, if its session is open, and others have admitted it. Local."""
    if world.closed or world.is_outside:
        return False
    crew.depart()
    return True


def transport(deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The transport of all ranks, and the process monitor of those of this host. Collective.

    Ranks may fail from their start on. RuntimeError: a rank has failed in the session before. DeadlinePassed: ranks are
    missing. MemoryError: shared memory is short.
    """
    try:
        made = _transport(deadline_s, suspect_after_s)
    except BaseException as error:
        if is_of_torchrun():
            end_job()
        elif isinstance(error, MemoryError):
            raise MemoryError(f"survive=True: {error}, or run without it") from None
        raise
    _views.append(made[0].view)
    return made


def _transport(deadline_s: float, suspect_after_s: float | None) -> tuple[SurvivingTransport, ProcessMonitor]:
    # Where the launcher is on another host, the reports of ranks are in no folder that they see.
    folder, here = Path(os.environ[JOB_DIR]), _is_on_one_host() and not is_connected()
    ranks = process_group()
    if ranks.incarnation and reporting.folder() is None and not is_connected():
        raise Refused(ranks.rank, "it cannot reach the launcher")  # nor learn of the others
    session = _session(ranks.incarnation)
    is_elastic = ranks.roster is not None and ranks.roster.least < ranks.roster.most
    if ranks.incarnation and _sessions > 1 and (is_elastic or not here):
        raise Refused(ranks.rank, "the others have ended the session")
    if _sessions > 1 and is_elastic:
        raise RuntimeError("malt.init: a job whose ranks come and go (--elastic) has one session: leave out "
                           "malt.finalize, or --elastic")  # fmt: skip
    if here:
        return _of_one_host(folder, session, ranks, deadline_s, suspect_after_s)
    if any(view.reported for view in _views):
        raise RuntimeError("ranks have failed in the session before: no new one can begin, start a new job")
    from malt.session.resilience import hosts  # it loads all that connects ranks of several hosts

    return hosts.transport(session, ranks, deadline_s, suspect_after_s, not is_of_torchrun())


def _is_on_one_host() -> bool:
    """Return whether all ranks of the job are on this host. Local."""
    return os.environ.get(reporting.HOST_SIZE) == os.environ.get(reporting.SIZE)


def _session(incarnation: int) -> str:
    """The name of the next session: the same on all ranks. One that was started again comes to that which goes on."""
    global _sessions
    newest = sessions.newest_session() if incarnation else 0
    _sessions = newest or _sessions + 1
    return SESSION.format(_sessions)


def _of_one_host(
    folder: Path, session: str, ranks: ProcessGroup, deadline_s: float, suspect_after_s: float | None
) -> tuple[SurvivingTransport, ProcessMonitor]:
    """The transport and process monitor of ranks of one host. Collective."""
    place = LoneTransport(ranks.rank, [f"{os.uname().nodename}/0"] * ranks.size)
    waited, reports = Stopwatch(), Stream(folder)
    while set(range(ranks.first)) - (started := processes(reports.read())).keys():
        if waited.seconds() > deadline_s:
            raise missing(set(started), range(ranks.first), deadline_s)
        time.sleep(_POLL_S)
    others = {rank: process for rank, process in started.items() if rank != place.rank}
    monitor = ProcessMonitor(others, place.clock, math.inf if is_of_torchrun() else suspect_after_s)
    arrived = Rendezvous(folder, session, place.rank, ranks.first, ranks.incarnation, _sessions == 1).come(
        shm_space.share_nbytes(place.size), monitor.find_failed, deadline_s
    )
    begins = arrived.lives.get(place.rank) == ranks.incarnation
    if begins:
        _watch(monitor, arrived.lives, ranks, reports.read())
    path = shm_space.file_of(folder.name, session)
    arena = SharedMemory(path, place.rank, range(place.size), arrived.nbytes, fence)
    made = SurvivingTransport(
        place, arena, monitor.find_failed, deadline_s, discard=arena.discard,
        evict=None if is_of_torchrun() else monitor.kill, readmit=monitor.readmit if ranks.rejoins else None,
        absent=range(ranks.first, ranks.size), incarnations=arrived.lives if begins else None,
    )  # fmt: skip
    if not begins and made.returns is not None:
        made.clear()
        ended = partial(_ended, ranks, monitor, reports)
        made.returns.ask(ranks.incarnation, this_process(), ended, partial(sessions.is_over, session))
        return made, monitor
    made.barrier("malt.init")
    if not ranks.rejoins:  # ranks that come back map it, too: the launcher removes it at the end
        path.unlink(missing_ok=True)  # all live ranks have mapped it
    return made, monitor


def _watch(monitor: ProcessMonitor, members: Mapping[int, int], ranks: ProcessGroup, reports: History) -> None:
    """Watch the processes of the `members` of a session, by rank and incarnation; all others count as ended. Local."""
    started, again = processes(reports), reports.texts(Kind.AGAIN)
    for rank in set(range(ranks.first)) - {ranks.rank}:
        if rank in members and int(again.get(rank, "0")) == members[rank] and rank in started:
            monitor.readmit(rank, started[rank])
        else:
            monitor.lose(rank)
    if ranks.incarnation and ranks.roster is not None:
        with roster.changing(os.environ[JOB_DIR]) as found:
            found.enlist(ranks.rank, ranks.incarnation)


def _ended(ranks: ProcessGroup, monitor: ProcessMonitor, reports: Stream) -> set[int]:
    """The ranks of this host that have ended, or were not started so far; to a rank that comes later. Local."""
    started = processes(reports.read())
    for rank in started.keys() - {ranks.rank}:
        if monitor.watched.get(rank) != started[rank]:  # it was started again meanwhile
            monitor.readmit(rank, started[rank])
    return {*monitor.find_failed(), *(set(range(ranks.size)) - started.keys())}


def _reason(world: World, rank: int) -> str:
    """Return why `rank` has failed, as far as the folder of the job shows."""
    left = Stream(os.environ[JOB_DIR]).read().get(Kind.LEFT, rank)
    if left is None and is_of_torchrun() and rank not in {*world.transport.local_peers, world.rank}:
        return _UNHEARD
    if left is None:
        return "its process has ended"
    return "it has ended before the others" if left.text == "0" else "it has failed"


def _eviction(world: World, rank: int) -> str:
    """Return why `rank` was killed: it made others wait beyond the deadline."""
    since_heartbeat_s = world.transport.clock() - world.transport.heard_at(rank)
    return (
        f"it made no malt call for {since_heartbeat_s:.0f} s while others waited for it, and was ended "
        f"(deadline_s={world.deadline_s:g}; malt.heartbeat() is a sign of life)"
    )


def end_job() -> None:
    """Remove the folder of the job, if torchrun has started it. Local."""
    from malt.session.resilience import joining  # hardly any other job needs it

    joining.end_job()


def end_with(world: World, change: Change) -> None:
    """End this process, as ranks have failed and none goes on without them. Does not return. Local.

    The lowest live rank of each host says which, unless the folder is gone. Then another one, which has ended since,
    has said so; or one has failed, and has printed why.
    """
    hosts_of = world.transport.hosts
    lowest = {hosts_of[rank]: rank for rank in reversed(world.transport.view.alive)}
    if world.rank == lowest[hosts_of[world.rank]] and os.path.isdir(os.environ[JOB_DIR]):
        for rank in sorted(member.rank for member in change.failed):
            print(f"malt: rank {rank} is lost: {_reason(world, rank)}; the job ends", file=sys.stderr, flush=True)
        end_job()
    departure.flush()
    time.sleep(_LAUNCHER_S)
    exit_hooks.leave(1)


def report(world: World, transport: SurvivingTransport, change: Change, monitor: ProcessMonitor) -> None:
    """Record the ranks that have failed or come back, report them on the lowest live rank, and schedule the callbacks.
    Local.
    """
    if change.failed:
        _report_failed(world, transport, dict(sorted(change.failed)), monitor)
    came = sorted(member.rank for member in change.joined)
    if came and world.crew is not None:
        world.crew.refresh()
    reporter = min(set(world.alive).difference(came), default=-1)  # a newcomer does not report itself
    for rank in came:
        is_new = world.failures.note_return(rank, world.moment())
        if world.rank == reporter and not is_leaving():
            on = _continue(world, len(world.alive))
            how = "has come" if is_new and world.is_elastic else "is back"
            print(f"malt: rank {rank} {how}; {on}", file=sys.stderr, flush=True)
        for callback in world.failures.on_join:
            transport.call_later(partial(callback, rank))


def _continue(world: World, ranks: int) -> str:
    """The ranks that continue, in words: as a job shrinks, for a while more than it is to have."""
    return f"{ranks} of {count(max(ranks, world.size), 'rank')} continue"


def _report_failed(
    world: World, transport: SurvivingTransport, fresh: dict[int, int], monitor: ProcessMonitor
) -> None:  # fmt: skip
    """Record and report ranks that have failed. `fresh`: their incarnations, by rank. Local."""
    before = set(world.failures.lost)
    found = {rank: "" if world.crew is None else world.crew.why_left(rank, fresh[rank]) for rank in fresh}
    retired = {rank: why for rank, why in found.items() if why}
    for rank in fresh:
        if rank in retired:
            world.failures.gone.add(rank)
            continue
        stopped_s = monitor.stopped_s(rank)
        world.failures.lost[rank] = world.moment(stopped_s)
        world.failures.back.pop(rank, None)
        world.failures.reasons[rank] = "it was stopped, and was ended" if stopped_s else _reason(world, rank)
        if transport.was_cut_off(rank):
            world.failures.reasons[rank] = _UNHEARD
        if world.transport.was_evicted(rank):
            world.failures.reasons[rank] = _eviction(world, rank)
    if not _is_on_one_host():
        for rank in fresh:  # the launcher may not see them
            reporting.report(Kind.LOST, str(fresh[rank]), rank)
    lost = world.failures.lost.keys() - world.failures.back.keys()
    # Some of those that are alive here may have finished by now.
    alive = sorted(set(range(world.transport.size)) - lost - world.failures.gone)
    if world.rank == alive[0] and not is_leaving():
        # The rank that was lowest until now may have failed before it reported those that failed before it.
        reported = list(fresh) if min(fresh) > world.rank else sorted(before | set(fresh))
        for rank in reported:
            on = _continue(world, len(alive))
            how = f"has left, {retired[rank]}" if rank in retired else f"is lost: {world.failures.reasons[rank]}"
            print(f"malt: rank {rank} {how}; {on}", file=sys.stderr, flush=True)
    for rank in fresh:
        for callback in world.failures.on_death:
            transport.call_later(partial(callback, rank))
