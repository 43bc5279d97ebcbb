"""`malt run --trace`: the session of this rank begins to write down its events."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from dstorm.transport import Transport
from malt.runner import reporting
from malt.session.world.world import World
from malt.watch.metrics import TRACE
from malt.watch.trace.clocks import Exchange, Offset, offset
from malt.watch.trace.files import log_of
from malt.watch.trace.layout import HOST, LAUNCHED

if TYPE_CHECKING:
    from malt.watch.trace.log import Log

_ROUNDS = 8
"""Exchanges in which ranks of several hosts compare their clocks."""

_log: Log | None = None
"""That of this process: a later session goes on with it."""


def begin(world: World) -> None:
    """Write down the events of `world` from now on, where MALT_TRACE names a folder. Collective.

    Where its file cannot be written, this rank says so in one line, and is not traced.
    """
    folder, transport = os.environ.get(TRACE), world.transport
    if not folder:
        return
    clock = _offset(transport)
    log = _opened(folder, world)
    if log is not None:
        log.begin(transport.clock(), *clock)
        log.name(f"{LAUNCHED}{world.launched_at}")
        note_host(log, transport)
        transport.trace = log
        transport.view.subscribe(
            lambda change: log.failed([member.rank for member in change.failed], transport.clock())
        )


def note_host(log: Log, transport: Transport) -> None:
    """Write down the host of this rank, where there are several. Local."""
    if len(set(transport.hosts)) > 1:
        log.name(HOST + transport.hosts[transport.rank])


def _opened(folder: str, world: World) -> Log | None:
    global _log
    members, ranks = world.members, world.transport.size
    if world.comm is not None:
        from mpi4py import MPI

        ranks = MPI.COMM_WORLD.size
    if _log is None:
        from malt.watch.trace.log import Log

        rank = int(reporting.rank()) if reporting.rank() != "?" else 0
        try:
            _log = Log(log_of(folder, rank, reporting.incarnation()), rank, ranks)
        except OSError as error:
            print(f"malt: rank {rank} is not traced: {error.filename or folder}: {error.strerror}", file=sys.stderr)
            return None
    _log.name_peers(members)
    return _log


def _offset(transport: Transport) -> Offset:
    """Return the lead of this rank's clock over that of rank 0. Collective. Ranks of one host have one clock."""
    if len(set(transport.hosts)) == 1:
        return Offset()
    mine = []
    for _ in range(_ROUNDS):
        entered = transport.clock()
        transport.allgather(b"-")
        mine.append(Exchange(entered, transport.clock()))
    reports = transport.allgather(json.dumps(mine).encode())
    lowest = next(report for report in reports if report)
    return offset(mine, [Exchange(*one) for one in json.loads(lowest)])
