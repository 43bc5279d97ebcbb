"""The transport of a session whose ranks may fail, on several hosts.

Each rank publishes its endpoint by the launcher, and looks up those of the others. Why they do not communicate through
MPI is in dstorm/transports/links/links.py.

A rank that was started again looks all of them up, and connects to those that run. It maps the memory of its host,
which stays until the job ends.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dstorm.errors import DeadlinePassed, PeerLost, Refused
from dstorm.membership.processes import Process, ProcessMonitor, has_ended, this_process
from dstorm.transports import shm_space
from dstorm.transports.links.arbiter import Arbiter
from dstorm.transports.links.endpoints import Endpoint, Exchange
from dstorm.transports.links.links import Links
from dstorm.transports.mapped import fence
from dstorm.transports.shm import SharedMemory
from dstorm.transports.solo import LoneTransport
from dstorm.transports.tcp import LinkedTransport, host_name
from dstorm.view import Member
from dstorm.waits.stopwatch import Stopwatch
from malt.files import atomic
from malt.launch.machine import open_files
from malt.runner import departure, reporting
from malt.runner.program import JOB_DIR
from malt.session.resilience import joining, sessions
from malt.session.resilience.process_group import ProcessGroup

PUBLISHED = "{}-published-{}"
"""The report of a rank: session and rank. That of one that was started again ends in a point and its incarnation."""
_NAME = re.compile(r"(session-(\d+))-published-(\d+)\.?(\d*)")
_POLL_S = 0.01
_START_S = 30.0
"""How long the ranks may take to connect, once all have come."""
_AGAIN_S = 10.0
"""How long a rank that was started again tries to reach others that are not known to have ended."""

Connections = tuple[dict[int, socket.socket], dict[int, socket.socket]]
"""Those to, and those from, ranks of other hosts, by rank."""


class Known:
    """The certain knowledge of this rank about processes of ranks. `near`: those of other ranks of this host.

    `newest`: the incarnations of ranks that were started again, as this rank begins.
    """

    def __init__(
        self, session: str, ranks: ProcessGroup, near: Mapping[int, Process], newest: Mapping[int, int]
    ) -> None:  # fmt: skip
        self._session, self.ranks, self.newest = session, ranks, newest
        self._near = {rank: (newest.get(rank, 0), process) for rank, process in near.items()}
        """By rank: its incarnation, and the process."""

    def readmit(self, member: Member, process: Process) -> None:
        """Note the process of a rank of this host that was started again."""
        self._near[member.rank] = member.incarnation, process

    def ended(self) -> dict[int, int]:
        """The incarnations that have ended: of ranks of this host, and of those that the launcher has seen end."""
        known = departure.ended_elsewhere()
        near = {rank: one for rank, (one, process) in tuple(self._near.items()) if has_ended(process)}
        return {rank: max(known.get(rank, -1), near.get(rank, -1)) for rank in known.keys() | near.keys()}

    def started(self) -> dict[int, int]:
        """The incarnations of ranks that were started again."""
        return _newest(self._session) if self.ranks.rejoins else {}


def transport(
    session: str, ranks: ProcessGroup, deadline_s: float, suspect_after_s: float | None, goes_on: bool = True
) -> tuple[LinkedTransport, ProcessMonitor]:
    """The transport of `ranks`, and the process monitor of those of this host. Collective.

    Ranks may fail once it has returned. `session`: a name that no other session has. `suspect_after_s`: the heartbeat
    timeout, as for malt.init. `goes_on`: whether the others go on where a rank fails; else the job ends, and no rank is
    killed because it gives no heartbeat.

    RuntimeError: the limit of open files is too low. Refused: this rank was started
    again, and cannot come back. DeadlinePassed: ranks are missing, or cannot be reached. MemoryError: a host has too
    little free shared memory.
    """
    exchange = Exchange(ranks.rank, reporting.job_key(), session, dict.fromkeys(reporting.job_hosts()))
    mine = [_host_name(goes_on), this_process(), exchange.endpoint, shm_space.free_nbytes()]
    reports = _gather(session, ranks, mine, deadline_s)
    newest = _newest(session) if ranks.rejoins else {}
    again = {rank: _look_up(session, rank, incarnation) for rank, incarnation in newest.items()}
    latest = reports | {rank: json.loads(text) for rank, text in again.items() if text}
    place = LoneTransport(ranks.rank, _hosts_of({rank: one[0] for rank, one in reports.items()}, ranks.size))
    leave = partial(_leave, ranks.rank, goes_on)
    memory = _memory(session, place, ranks, {rank: one[3] for rank, one in reports.items()})
    near = {rank: Process(*latest[rank][1]) for rank in place.local_peers if rank in latest}
    known = Known(session, ranks, near, newest)
    monitor = ProcessMonitor(near, place.clock, suspect_after_s if goes_on else math.inf)
    addresses = {rank: Endpoint(*one[2]) for rank, one in latest.items()}
    absent = range(ranks.first, ranks.size)
    arbiter = Arbiter(
        ranks.rank, ranks.size, known.ended, find_started=known.started, incarnation=ranks.incarnation, absent=absent,
        goes_on=goes_on,
    )  # fmt: skip
    connections = _connections(exchange, place, addresses, known, deadline_s)
    links = _links(memory, place, connections, known, arbiter, leave, suspect_after_s)
    if ranks.rejoins:
        exchange.join_by(links.join)

    def readmit(rank: int, process: Sequence[int]) -> None:
        """Watch the process of a rank of this host that has come back. Local."""
        monitor.readmit(rank, process)
        known.readmit(made.view.member(rank), Process(*process))

    made = LinkedTransport(
        place, memory, links, arbiter, monitor.find_failed, monitor.end, deadline_s, leave,
        monitor.kill if goes_on else None, readmit if ranks.rejoins else None, absent,
    )  # fmt: skip
    atomic.confirm_by(links.confirm)
    if ranks.incarnation and made.returns is not None:
        made.clear()
        made.returns.ask(ranks.incarnation, this_process(), arbiter.over, partial(sessions.is_over, session))
        return made, monitor
    made.barrier("malt.init")
    if not ranks.rejoins:  # ranks that come back map it, too: the launcher and its agents remove it at the end
        _path(session, place).unlink(missing_ok=True)  # all live ranks have mapped it
    return made, monitor


def _connections(
    exchange: Exchange, place: LoneTransport, addresses: Mapping[int, Endpoint], known: Known, deadline_s: float
) -> Connections:
    """The connections to and from the ranks of other hosts that were reached. Collective, but for a rank that was
    started again: One-sided. DeadlinePassed. RuntimeError: the limit of open files is too low.

    `addresses`: those of all ranks, but for those that have not been there so far.
    """
    endpoints = {rank: one for rank, one in addresses.items() if rank not in place.local_ranks}
    far = set(range(place.size)) - {*place.local_ranks}
    _allow_files(2 * len(far))
    if known.ranks.incarnation:
        exchange.listen(far, known.newest)
        return _call_again(exchange, endpoints, known)
    return exchange.connect(endpoints, min(deadline_s, _START_S), far if known.ranks.rejoins else ())


def _links(
    memory: SharedMemory, place: LoneTransport, connections: Connections, known: Known, arbiter: Arbiter,
    leave: Callable[[str], object], suspect_after_s: float | None,
) -> Links:  # fmt: skip
    """The links over `connections`. Local."""
    out, into = connections
    unreached = set(range(place.size)) - {*place.local_ranks} - out.keys()
    linked = {rank: one for rank, one in known.newest.items() if rank in out}
    return Links(memory.memory, out, into, arbiter, leave, suspect_after_s, unreached, linked)


def _call_again(exchange: Exchange, endpoints: Mapping[int, Endpoint], known: Known) -> Connections:
    """The connections to and from the ranks of `endpoints`, for this rank, which was started again. One-sided.

    Those that cannot be reached are left out. So are those that are started again meanwhile, which call this rank.
    """
    newest = known.newest
    found: dict[int, tuple[socket.socket, socket.socket]] = {}
    waited = Stopwatch(longest_step_s=_AGAIN_S / 2)  # all calls of one round
    while True:
        ended, started = known.ended(), known.started()
        missing = {
            rank: one for rank, one in endpoints.items()
            if rank not in found and ended.get(rank, -1) < newest.get(rank, 0) >= started.get(rank, 0)
        }  # fmt: skip
        found |= exchange.call_again(missing, newest)
        if missing.keys() <= found.keys() or waited.seconds() > _AGAIN_S:
            break
        time.sleep(_POLL_S)
    exchange.end_calls()
    return {rank: out for rank, (out, _) in found.items()}, {rank: into for rank, (_, into) in found.items()}


def _newest(session: str) -> dict[int, int]:
    """By rank: the newest incarnation that has published an endpoint of the session, of those started again."""
    found: dict[int, int] = {}
    for name in departure.publications():
        one = _NAME.fullmatch(name)
        if one and one[1] == session and one[4]:
            found[int(one[3])] = max(int(one[4]), found.get(int(one[3]), 0))
    return found


def _allow_files(count: int) -> None:
    """Let this process open so many connections. RuntimeError: the limit is lower."""
    count += open_files.OTHERS
    if (limit := open_files.allow(count)) is not None:
        raise RuntimeError(
            f"the connections to ranks of other hosts need {count} open files, and the limit on {os.uname().nodename} "
            f"is {limit}: raise it there (ulimit -n {count}), or start fewer ranks"
        )


def _gather(session: str, ranks: ProcessGroup, mine: Sequence[Any], deadline_s: float) -> dict[int, Any]:
    """The reports of the first ranks, by rank, each as `mine`. Collective. DeadlinePassed: ranks are missing.

    Those with which they have begun: this rank may have been started again.
    """
    name = f"{ranks.rank}.{ranks.incarnation}" if ranks.incarnation else ranks.rank
    reporting.publish(PUBLISHED.format(session, name), json.dumps(mine))
    found: dict[int, Any] = {}
    waited = Stopwatch()
    while missing := [other for other in range(ranks.first) if other not in found]:
        joining.pass_on()
        for other in missing:
            if text := _look_up(session, other):
                found[other] = json.loads(text)
        if departure.is_disconnected():
            raise PeerLost(missing[0], "the launcher ended, or its host was cut off, before all ranks had connected")
        if waited.seconds() > deadline_s:
            raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
        time.sleep(_POLL_S)
    while not joining.pass_on() and waited.seconds() <= deadline_s:
        time.sleep(_POLL_S)  # nobody sends the rest afterwards
    while ranks.incarnation and _newest(session).get(ranks.rank, 0) < ranks.incarnation:
        if departure.is_disconnected() or waited.seconds() > deadline_s:
            raise Refused(ranks.rank, "the launcher, which tells the others that this rank is back, does not answer")
        time.sleep(_POLL_S)  # all that can hear of it have heard before it is a member: see quorum.py
    return {other: found[other] for other in range(ranks.first)}


def _host_name(has_launcher: bool) -> str:
    """The name of this host. Where torchrun has started the ranks, those of one torchrun are on a host."""
    return host_name() if has_launcher else f"{os.uname().nodename}/{Path(os.environ[JOB_DIR]).name}"


def _hosts_of(reported: Mapping[int, str], size: int) -> list[str]:
    """The name of the host of each rank. `reported`: those of the first ranks, as they have found out themselves.

    A rank that comes later is on the host of the first ranks that the launcher names alike.
    """
    names = reporting.job_hosts()
    known = {names[rank]: host for rank, host in reported.items() if rank < len(names)}
    return [reported[rank] if rank in reported else known.get(names[rank], names[rank]) for rank in range(size)]


def _look_up(session: str, rank: int, incarnation: int = 0) -> str | None:
    return departure.published(PUBLISHED.format(session, f"{rank}.{incarnation}" if incarnation else rank))


def _memory(session: str, place: LoneTransport, ranks: ProcessGroup, free_nbytes: Mapping[int, int]) -> SharedMemory:
    """The shared memory of this host's ranks. Collective.

    It has the same size for each rank of the job: as much as every host can give, of those that ranks began on.
    `free_nbytes`: what is free, by rank. Refused: this rank was started again, or comes later, and the memory is not
    there any more, or is too small.
    """
    path, local_ranks = _path(session, place), place.local_ranks
    counts = {rank: place.hosts.count(place.hosts[rank]) for rank in free_nbytes}
    nbytes = min(shm_space.share_nbytes(counts[rank], free) for rank, free in free_nbytes.items())
    if ranks.incarnation and not path.exists():
        if min(local_ranks) < ranks.first:
            raise Refused(ranks.rank, f"the memory of the ranks of its host is gone ({path})")
        if len(local_ranks) * nbytes > shm_space.free_nbytes():
            why = f"its host has less shared memory than the others give each rank ({nbytes:,} bytes)"
            raise Refused(ranks.rank, why)
    return SharedMemory(path, place.rank, local_ranks, nbytes, fence)


def _path(session: str, place: LoneTransport) -> Path:
    """The file of that memory."""
    return shm_space.file_of(Path(os.environ[JOB_DIR]).name, f"{session}-{place.local_ranks[0]}")


def _leave(rank: int, goes_on: bool, why: str) -> NoReturn:
    """End this process alone, whatever it does."""
    how = f"leaves: {why}" if goes_on else "ends, as the others have lost it; the job ends"
    print(f"malt: rank {rank} {how}", file=sys.stderr, flush=True)
    joining.end_job()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")
