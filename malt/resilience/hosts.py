"""The transport of a session whose ranks may fail, on several hosts.

Ranks do not communicate through MPI, not even at the start. A connection of MPI that breaks when a rank fails would end
the job (dstorm/transports/links/links.py). Each rank publishes its endpoint through the processes of mpiexec, and looks
up those of the others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dstorm.errors import DeadlinePassed, PeerLost
from dstorm.membership.barriers.rejoining import Refused
from dstorm.membership.processes import Process, ProcessMonitor, has_ended, this_process
from dstorm.transports import shm_space
from dstorm.transports.links.arbiter import Arbiter
from dstorm.transports.links.endpoints import Endpoint, Exchange
from dstorm.transports.links.links import Links
from dstorm.transports.shm import SharedMemory
from dstorm.transports.tcp import Arena, LinkedTransport, SeveralHosts, host_name
from malt.launch.machine import open_files
from malt.resilience.party import Party
from malt.runner import leaving, reporting
from malt.runner.program import JOB_DIR

PUBLISHED = "{}-published-{}"
"""The report of a rank: session and rank."""
_POLL_S = 0.01
_START_S = 30.0
"""How long the ranks may take to connect, once all have come."""


def transport(
    session: str, ranks: Party, deadline_s: float, suspect_after_s: float | None
) -> tuple[LinkedTransport, ProcessMonitor]:
    """The transport of `ranks`, and the process monitor of those of this host. Collective.

    Ranks may fail once it has returned. `session`: a name that no other session has. `suspect_after_s`: the heartbeat
    timeout, as for malt.init.

    RuntimeError: it does not work with this MPI, or the limit of open files is too low. Refused: this rank was started
    again. DeadlinePassed: ranks are missing, or cannot be reached. MemoryError: a host has too little free shared
    memory.
    """
    if ranks.incarnation:
        raise Refused(ranks.rank, "ranks come back on one host alone")
    if ranks.has_mpi and not ranks.library.startswith("Open MPI"):
        raise RuntimeError("survive=True is for ranks of one host with this MPI: run them on one, or without it")
    exchange = Exchange(ranks.rank, reporting.job_key(), session, reporting.job_hosts())
    mine = [host_name(), this_process(), exchange.endpoint, shm_space.free_nbytes()]
    reports = _gather(session, ranks, mine, deadline_s)
    place = SeveralHosts(ranks.rank, [host for host, _, _, _ in reports], ranks.library)
    leave = partial(_leave, ranks.rank)
    memory = _memory(session, place, [free for _, _, _, free in reports], ranks.fence)
    near = {rank: Process(*reports[rank][1]) for rank in place.local_peers}
    monitor = ProcessMonitor(near, place.clock, suspect_after_s)
    endpoints = {rank: Endpoint(*reports[rank][2]) for rank in range(place.size) if rank not in place.local_ranks}
    _allow_files(2 * len(endpoints))
    out, into = exchange.connect(endpoints, min(deadline_s, _START_S))
    arbiter = Arbiter(ranks.rank, ranks.size, partial(_ended, near, ranks.members))
    links = Links(memory.memory, out, into, arbiter, leave, suspect_after_s, endpoints.keys() - out.keys())
    arena = Arena(memory, links)
    made = LinkedTransport(
        place, arena, links, arbiter, monitor.find_failed, monitor.end, deadline_s, leave, monitor.kill
    )
    made.barrier("malt.init")
    _path(session, place).unlink(missing_ok=True)  # all live ranks have mapped it
    return made, monitor


def _allow_files(count: int) -> None:
    """Let this process open so many connections. RuntimeError: the limit is lower."""
    count += open_files.OTHERS
    if (limit := open_files.allow(count)) is not None:
        raise RuntimeError(
            f"the connections to ranks of other hosts need {count} open files, and the limit on {os.uname().nodename} "
            f"is {limit}: raise it there (ulimit -n {count}), or start fewer ranks"
        )


def _gather(session: str, ranks: Party, mine: Sequence[Any], deadline_s: float) -> list[Any]:
    """The reports of all ranks, by rank, each as `mine`. Collective. DeadlinePassed: ranks are missing."""
    publish, look_up = _by_mpi(session) if ranks.has_mpi else (partial(_publish, session), partial(_look_up, session))
    publish(ranks.rank, json.dumps(mine))
    found: dict[int, Any] = {}
    end = time.monotonic() + deadline_s
    while missing := [other for other in range(ranks.size) if other not in found]:
        for other in missing:
            if text := look_up(other):
                found[other] = json.loads(text)
        if leaving.is_disconnected():
            raise PeerLost(missing[0], "the launcher has ended, or its host is cut off, before all ranks had met")
        if time.monotonic() > end:
            raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
        time.sleep(_POLL_S)
    return [found[other] for other in range(ranks.size)]


def _by_mpi(session: str) -> tuple[Callable[[int, str], None], Callable[[int], str | None]]:
    """Functions that publish the report of a rank, and look one up, by the processes of mpiexec."""
    from dstorm.transports import mpi

    name = f"malt-{os.environ.get('PMIX_NAMESPACE', '')}-{session}"
    return (lambda rank, text: mpi.publish(f"{name}-{rank}", text)), (lambda rank: mpi.look_up(f"{name}-{rank}"))


def _publish(session: str, rank: int, text: str) -> None:
    """Publish the report of a rank by the launcher (malt/launch/reports/control.py)."""
    reporting.report(PUBLISHED.format(session, rank), text)


def _look_up(session: str, rank: int) -> str | None:
    name, folder = PUBLISHED.format(session, rank), reporting.folder()
    if folder is None:
        return leaving.published().get(name)
    try:
        return Path(folder, name).read_text(encoding="utf-8")
    except OSError:
        return None


def _memory(session: str, place: SeveralHosts, free_nbytes: Sequence[int], fence: Callable[[], None]) -> SharedMemory:
    """The shared memory of this host's ranks. Collective.

    It has the same size for each rank of the job: as much as every host can give. `free_nbytes`: what is free, by rank.
    """
    hosts = zip(place.hosts, free_nbytes, strict=True)
    nbytes = min(shm_space.share_nbytes(place.hosts.count(host), free) for host, free in hosts)
    local_ranks = place.local_ranks
    return SharedMemory(_path(session, place), place.rank, local_ranks, nbytes, fence)


def _path(session: str, place: SeveralHosts) -> Path:
    """The file of that memory."""
    job = Path(os.environ.get(JOB_DIR) or f"malt-{os.environ.get('PMIX_NAMESPACE', '')}".replace("/", "-")).name
    return shm_space.file_of(job, f"{session}-{place.local_ranks[0]}")


def _ended(near: Mapping[int, Process], members: Sequence[int]) -> list[int]:
    """The ranks that are known to have ended: those of `near`, of this host, and those that the launcher has seen end.

    `members`: the ranks in MPI.COMM_WORLD, as the launcher counts them.
    """
    seen = leaving.ended_elsewhere()
    found = {rank for rank, process in near.items() if has_ended(process)}
    return sorted(found | {rank for rank, member in enumerate(members) if member in seen})


def _leave(rank: int, why: str) -> NoReturn:
    """End this process alone, whatever it does."""
    print(f"malt: rank {rank} leaves: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # MPI waits for nothing then
    raise AssertionError("killed")
