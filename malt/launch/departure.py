"""How the ranks of a job leave that is told to end: each is sent the signal once, and ends by itself.

In the folder of the job:

signal-<n>       the launcher sends signal n: a rank that is sent it by others is not leaving
closing-<rank>   where ranks may not die: its program has ended, and its interpreter ends; it is removed then
stopped-<rank>   its program has ended: once the interpreter has, too, it waits to be killed, as an exit would end the
                 others, too
at-<rank>.txt    what it was doing when the signal came

On other hosts it is told only over a connection (malt/launch/control.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from dstorm.membership import processes as vitals
from dstorm.transports import shm_space
from malt.launch.control import ControlServer
from malt.launch.job_state import ranks_with, started

_FINALIZES_S = 1.0
"""A rank that has come to its end so long ago waits in MPI_Finalize, where it sees no signal."""


class Departure:
    """How the ranks of one job leave.

    `is_spread`: some may be on hosts that the launcher cannot reach. `is_fault_tolerant`: a rank may end alone.
    """

    def __init__(
        self, folder: Path, ranks: int, is_spread: bool = False, is_fault_tolerant: bool = False,
        control_server: ControlServer | None = None,
    ) -> None:  # fmt: skip
        self.folder, self._all, self._control_server = folder, set(range(ranks)), control_server
        self.is_spread, self._is_fault_tolerant = is_spread, is_fault_tolerant
        self._notified: set[int] = set()

    def report(self, number: int) -> None:
        """Tell all who have come to Python by now, and were not told yet. Local."""
        if not self._notified:
            (self.folder / f"signal-{number}").touch()
        here = started(self.folder)
        fresh = here.keys() - self._notified - ranks_with(self.folder, "finished")
        # One that misses who was told before it may leave first, and would not close its files if it were told then.
        self._send(number, (here[rank] for rank in fresh if not (self.folder / f"stopped-{rank}").exists()))
        elsewhere = ranks_with(self.folder, "elsewhere") - self._notified
        if self._control_server is not None and elsewhere:
            self._control_server.report(number)
        self._notified |= fresh | elsewhere

    def send(self, number: int) -> None:
        """Send a signal to all ranks on this host. Local."""
        self._send(number, started(self.folder).values())

    def is_over(self) -> bool:
        """Whether all have left who can be told. While some have come to Python the others may, too. Local."""
        known = set(started(self.folder)) | ranks_with(self.folder, "elsewhere")
        return (known if self.is_spread or not known else self._all) <= self._left()

    def slow(self) -> list[int]:
        """Those who were told and have not left."""
        return sorted(self._notified - self._left())

    def shared(self) -> set[str]:
        """The files in /dev/shm that MPI has made for them, and leaves there where they are killed."""
        return {name for process in started(self.folder).values() for name in shm_space.mapped(process.number)}

    def sessions(self) -> set[int]:
        """Those that processes of ranks may lead."""
        return {process.number for process in started(self.folder).values()}

    def _left(self) -> set[int]:
        left = {rank for rank, process in started(self.folder).items() if vitals.has_ended(process)}
        left |= ranks_with(self.folder, "ended")
        if not self._is_fault_tolerant:
            stopped = ranks_with(self.folder, "stopped")
            left |= stopped - ranks_with(self.folder, "closing")  # read later than it is written
            left |= {rank for rank in ranks_with(self.folder, "finished") if self._finalizes(rank)}
        return left

    def _finalizes(self, rank: int) -> bool:
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / f"finished-{rank}").stat().st_mtime > _FINALIZES_S
        return True

    def _send(self, number: int, processes: Iterable[vitals.Process]) -> None:
        for process in processes:
            if not vitals.has_ended(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.number, number)
