"""A session whose ranks may die, on several hosts: how they find each other, and what connects them.

No rank calls MPI for another, not even to begin: a connection of MPI's that breaks when a rank dies would end the job
(dstorm/transports/links.py). Each publishes where it can be found, by way of mpiexec's own processes, and looks the
others up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dstorm.errors import DeadlinePassed
from dstorm.membership.processes import Process, ProcessMonitor, this_process
from dstorm.membership.view import FaultTolerantView
from dstorm.transports import shm_space
from dstorm.transports.endpoints import Endpoint, Exchange
from dstorm.transports.links import Links
from dstorm.transports.shm import SharedMemory
from dstorm.transports.tcp import Arena, LinkedTransport, SeveralHosts, host_name
from malt.runner.program import JOB_DIR

_LOOK_S = 0.01
_START_S = 30.0
"""How long connections may take to stand, once all have come."""


def transport(
    session: str, comm: Any, deadline_s: float, suspect_after_s: float | None
) -> tuple[LinkedTransport, ProcessMonitor]:
    """The ranks of `comm`, of which some may die once this has returned. Collective. `session`: as
    `malt.resilience.rendezvous`.

    RuntimeError: not with this MPI. DeadlinePassed: one of them does not come, or cannot be reached. MemoryError.
    """
    from dstorm.transports import mpi

    if not mpi.library().startswith("Open MPI"):
        raise RuntimeError("survive=True is for ranks of one host with this MPI: run them on one, or without it")
    exchange = Exchange(comm.rank)
    mine = [host_name(), this_process(), exchange.endpoint, shm_space.free_nbytes()]
    found = _all(f"malt-{os.environ.get('PMIX_NAMESPACE', '')}-{session}", comm.rank, comm.size, mine, deadline_s)
    place = SeveralHosts(comm.rank, [host for host, _, _, _ in found], mpi.library())
    leave = partial(_leave, comm.rank)
    memory = _memory(session, place, [room for _, _, _, room in found])
    vitals = ProcessMonitor(
        {rank: Process(*found[rank][1]) for rank in place.local_peers}, place.clock, suspect_after_s
    )
    numbers = {rank: Endpoint(*found[rank][2]) for rank in range(place.size) if rank not in place.mates}
    out, into = exchange.connect(numbers, min(deadline_s, _START_S))
    ended = numbers.keys() - out.keys()
    view = FaultTolerantView(place.size)
    links = Links(memory.memory, out, into, view, leave, suspect_after_s, ended)
    arena = Arena(memory, place.mates, links)
    made = LinkedTransport(place, arena, links, vitals.find_failed, vitals.end, deadline_s, leave, vitals.kill, view)
    made.barrier("malt.init")
    _path(session, place).unlink(missing_ok=True)  # all who live have it
    return made, vitals


def _all(name: str, rank: int, size: int, mine: Sequence[Any], deadline_s: float) -> list[Any]:
    """What each rank says of itself, by rank. Collective. DeadlinePassed: one says nothing."""
    from dstorm.transports import mpi

    mpi.publish(f"{name}-{rank}", json.dumps(mine))
    found: dict[int, Any] = {}
    end = time.monotonic() + deadline_s
    while missing := [other for other in range(size) if other not in found]:
        for other in missing:
            if text := mpi.look_up(f"{name}-{other}"):
                found[other] = json.loads(text)
        if time.monotonic() > end:
            raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
        time.sleep(_LOOK_S)
    return [found[other] for other in range(size)]


def _memory(session: str, place: SeveralHosts, rooms: Sequence[int]) -> SharedMemory:
    """As much for each rank as the fullest host has for its ranks."""
    from dstorm.transports import mpi

    hosts = zip(place.hosts, rooms, strict=True)
    nbytes = min(shm_space.share_nbytes(place.hosts.count(host), room) for host, room in hosts)
    mates = place.mates
    return SharedMemory(_path(session, place), mates.index(place.rank), len(mates), nbytes, mpi.fence())


def _path(session: str, place: SeveralHosts) -> Path:
    job = Path(os.environ.get(JOB_DIR) or f"malt-{os.environ.get('PMIX_NAMESPACE', '')}".replace("/", "-")).name
    return shm_space.file_of(job, f"{session}-{place.mates[0]}")


def _leave(rank: int, why: str) -> NoReturn:
    """End this process alone, whatever it is at."""
    print(f"malt: rank {rank} leaves: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # leaves nothing for MPI to wait for
    raise AssertionError("killed")
