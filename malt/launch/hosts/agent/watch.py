"""The folder of a job on a host, and what runs there of the job. The agent is sent with this module: it imports of malt
only what it is sent with."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from dstorm.membership.processes import send
from malt.launch.hosts.agent.closing import has_closed
from malt.launch.hosts.agent.processes import kill, of_job, remove_memory
from malt.launch.hosts.agent.traces import remove_traces
from malt.runner.events import SENT, Kind, Stream, event
from malt.runner.reporting import write
from malt.watch.processes import processes

OWN, OF_LAUNCHER, SHARED = "own", "of the launcher", "shared"
"""Whose the folder of a job is: the agent's; the launcher's, on one host with the agent; that of another host."""
TRIAL, _TRIAL_NBYTES = "trial", 1 << 12
"""A file that is written to see whether the folder takes any, and its length. Its age is that of the job here."""


def identity() -> list[Any]:
    """Return values that distinguish hosts that share folders: the boot, and the namespace of process numbers.

    Containers of one machine count as hosts.
    """
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return [file.read().strip(), os.stat("/proc/self/ns/pid").st_ino]
    return [os.uname().nodename, 0]


def clean(folder: str) -> None:
    """Kill the ranks of a job on this host and the daemons of mpiexec that started them, and remove their files."""
    kill(partial(of_job, folder))
    remove_traces(folder)
    remove_memory(folder)
    shutil.rmtree(folder, ignore_errors=True)


class Watch:
    """The folder of a job on this host, which it makes. `launcher`: the identity of the launcher's host.

    `owner`: OWN. Else the folder is there already, and nothing is done. OSError: it cannot be made, or filled.
    """

    def __init__(self, folder: str, launcher: list[Any], send: Callable[[list[Any]], None]) -> None:
        self._folder, self._send = folder, send
        self._reports, self._closed = Stream(folder), set[int]()
        """What ranks have reported; and those that run no Python any more after that."""
        self.owner = OWN
        try:
            os.mkdir(folder, mode=0o700)
            _try_out(folder)
        except FileExistsError:
            self.owner = OF_LAUNCHER if launcher == identity() else SHARED

    def tend(self, takes: bool) -> bool:
        """Send what is new, where the launcher `takes` it. Returns False: the next look comes soon enough."""
        if takes:
            self._pass_on()
        return False

    def pause(self, is_paused: bool) -> None:
        """Stop the ranks, or let them go on."""
        self.send_ranks(signal.SIGSTOP if is_paused else signal.SIGCONT)

    def is_over_without(self, is_silent: bool) -> bool:
        """Return whether the launcher `is_silent`: the job ends on this host."""
        return is_silent

    def tell(self, command: str, value: Any) -> None:
        """Follow `signal`."""
        if command == "signal":
            self.send_ranks(value)

    def leave(self) -> None:
        """End the job on this host."""
        self.end()

    def send_ranks(self, number: int) -> None:
        """Send a signal to the ranks of this host. One whose program has ended gets none."""
        if self.owner != OWN:
            return
        reports = Stream(self._folder).read()
        for rank, one in processes(reports).items():
            if rank not in reports.ranks(Kind.FINISHED):
                send(one, number)

    def end(self) -> None:
        """End what runs here, and send the last reports."""
        if self.owner == OWN:
            kill(partial(of_job, self._folder))
            self._pass_on()
            clean(self._folder)

    def _pass_on(self) -> None:
        """Send the reports that have come since the last call, and which ranks have ended with their interpreters."""
        if self.owner != OWN:
            return
        fresh = [one for one in self._reports.fresh() if one.kind in SENT]
        running = self._reports.ranks(Kind.FINISHED) - self._closed
        closed = [event(Kind.CLOSED, rank) for rank in running if has_closed(self._folder, rank)]
        self._closed.update(one.rank for one in closed)
        for one in (*fresh, *closed):
            self._send(["report", one.line().decode()])


def _try_out(folder: str) -> None:
    """Remove a new folder where nothing can be written to it, as on a full disk. OSError: so it is."""
    try:
        write(os.path.join(folder, TRIAL), "x" * _TRIAL_NBYTES)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
