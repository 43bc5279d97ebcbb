"""Turns processes that torchrun has started into ranks of a job of plain processes.

Those of one host agree on a folder (malt/session/resilience/job_folder.py). On several hosts rank 0 is the control
server of the others, as the launcher is under `malt run --survive=best-effort`: they report to it, and learn from it at
which endpoints the ranks listen. It listens at one of the ports that follow MASTER_PORT; the others try all of these.

Connections and their handshake are also those of that option: a process that does not know the key is disconnected. The
key is made of the secret that the user has given all processes (MALT_KEY) and of what is the same for all of them, so
that two jobs with one secret do not mix.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dstorm.errors import DeadlinePassed
from dstorm.membership import children
from dstorm.transports.links.calling import NotAdmitted
from dstorm.transports.links.endpoints import interfaces
from dstorm.transports.links.server import call
from dstorm.waits import interruption
from dstorm.waits.stopwatch import Stopwatch
from malt.runner import departure, program, reporting
from malt.runner.events import Kind, append, event
from malt.runner.program import JOB_DIR
from malt.session.resilience import job_folder, torchrun
from malt.session.resilience.torchrun import KEY, Started

if TYPE_CHECKING:
    from malt.launch.reports.control import ControlServer

_ANSWER_S, _NAP_S = 2.0, 0.02
_REFUSED_S = 10.0
"""How long a rank that was refused tries on: another job may listen at the port, and rank 0 come later."""
_MOST_NAMED = 16
"""The most addresses that rank 0 names whose connections it drops."""

_server: ControlServer | None = None
"""That of the ranks on other hosts, on rank 0."""


def join(one: Started, deadline_s: float) -> None:
    """Make this process a rank of a job of plain processes, whose folder the ranks of a host agree on. Collective.

    DeadlinePassed: ranks are missing. RuntimeError: another job starts with the same variables, another user may have
    made a folder of this one, or rank 0 has another key.
    """
    folder = str(job_folder.agreed(one.name, one.rank, one.ranks, sys.argv, deadline_s, one.size))
    key, connection = "", None
    if not one.is_on_one_host:
        key = torchrun.job_key(one, os.environ.pop(KEY))
        try:
            connection = _meet(one, Path(folder), key, deadline_s)
        except BaseException:
            job_folder.remove(folder)
            raise
    for name in children.RANKS:  # srun may have given them to torchrun
        os.environ.pop(name, None)
    numbers = {reporting.RANK: one.rank, reporting.SIZE: one.size, reporting.HOST_SIZE: len(one.ranks)}
    os.environ.update({JOB_DIR: folder, **{name: str(number) for name, number in numbers.items()}})
    reporting.start(folder, (), key, connection)
    if connection is not None:
        threading.Thread(target=departure.listen, args=[connection.fileno()], name="malt launcher", daemon=True).start()
    append(folder, event(Kind.STARTED, one.rank, departure.process()))
    program.write_stacks_when_asked(folder)
    interruption.take_interrupts()  # under `malt run` the runner has taken them


def leave_job() -> None:
    """Remove the folder of a job that no launcher of malt removes, on the rank that has made it. Local."""
    if reporting.is_rank() and job_folder.is_maker():
        job_folder.remove(os.environ.get(JOB_DIR, ""))


def end_job() -> None:
    """Remove the folder of the job, on any rank of a host that has failed. Local.

    torchrun may end the rank that has made the folder before that rank removes it.
    """
    if reporting.is_rank():
        job_folder.remove(os.environ.get(JOB_DIR, ""))


def pass_on() -> bool:
    """Send what ranks have published to those on other hosts, if this rank is their control server. Local.

    Returns whether they have taken all.
    """
    return _server is None or _server.pass_on()


def _meet(one: Started, folder: Path, key: str, deadline_s: float) -> socket.socket | None:
    """The connection to rank 0, where that is on another host; there rank 0 begins to listen. One-sided."""
    global _server
    if one.rank == 0:
        from malt.launch.reports.control import ControlServer  # most jobs are on one host

        try:
            _server = ControlServer(folder, key, [one.address], one.ports, _Drops())
        except OSError as error:
            raise RuntimeError(
                f"rank 0 can listen at none of the ports {_named(one)}, which follow MASTER_PORT: {error}: give "
                "torchrun another port (--rdzv-endpoint HOST:PORT, --master-port)"
            ) from error
    return _connected(one, key, deadline_s) if 0 not in one.ranks else None


class _Drops:
    """The lines that rank 0 prints on connections that it drops: one for each address."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def __call__(self, address: str) -> None:
        """Print the line, if it was not printed before. Local."""
        if address not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(address)
            line = f"malt: rank 0 has dropped a connection from {address} with a wrong MALT_KEY"
            print(line, file=sys.stderr, flush=True)


def _connected(one: Started, key: str, deadline_s: float) -> socket.socket:
    """A connection to rank 0, which has admitted this rank.

    DeadlinePassed: it does not answer. RuntimeError: it has another key.
    """
    waited, refused = Stopwatch(longest_step_s=2 * _ANSWER_S), None
    for port in itertools.cycle(one.ports):
        for address in _addresses(one.address):
            try:
                return call((address, port), key, reporting.CONTROL_NAME, one.rank, _ANSWER_S)
            except NotAdmitted:
                refused = refused or (port, waited.seconds())
            except OSError:  # nobody listens there so far
                pass
        if refused is not None and waited.seconds() - refused[1] > min(_REFUSED_S, deadline_s):
            raise RuntimeError(
                f"rank 0 at {one.address}:{refused[0]} has dropped the connection of rank {one.rank}: it has another "
                "MALT_KEY: give all hosts the same"
            )
        if waited.seconds() > deadline_s:
            call_of = f"malt.init: rank {one.rank} has come, and calls {one.address} at the ports {_named(one)}"
            raise DeadlinePassed(call_of, {0: 0}, {0: deadline_s})
        time.sleep(_NAP_S)
    raise AssertionError("unreachable")


def _addresses(address: str) -> tuple[str, ...]:
    """Those at which rank 0 listens: `address`, unless that is of the loopback. Then it is on this machine."""
    try:
        is_local = socket.gethostbyname(address).startswith("127.")
    except OSError:  # it cannot be resolved so far
        is_local = False
    return interfaces([address]) if is_local else (address,)


def _named(one: Started) -> str:
    return f"{one.ports[0]} to {one.ports[-1]}"
