"""What a job reads as its standard input: rank 0 that of the launcher, the others nothing.

Open MPI's mpiexec never tells rank 0 of the end of its input, and MPICH's gives the others a pipe that never ends. So
on one host the ranks see to it themselves (malt/runner/program.py): rank 0 reads a FIFO in the folder of the job, which
the launcher writes. On several hosts rank 0 reads what mpiexec gives it.

A terminal is read by the launcher: mpiexec is in a session of its own, out of reach of the terminal's signals, where it
could read even while the launcher is in the background, whose input is not the job's.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from malt.runner.leaving import INPUT

_AGAIN_S = 0.2
"""How soon to ask again in the background, where a terminal refuses."""
_MOST_NBYTES = 1 << 16
_CLOSE_S = 1.0
"""How long the copying may take to end: what a rank has left behind may hold its input, and read none of it."""


class StandardInput:
    """`source`: what mpiexec reads, for subprocess.Popen."""

    def __init__(self, folder: Path, is_spread: bool) -> None:
        self.source: int | None = subprocess.DEVNULL
        self._thread: threading.Thread | None = None
        self._given: int | None = None
        self._fifo = folder / INPUT
        if sys.__stdin__ is None:  # closed: its number may be another file's by now
            if not is_spread:
                self._fifo.symlink_to(os.devnull)
        elif not is_spread:
            os.mkfifo(self._fifo)
            self._copy_to(lambda: os.open(self._fifo, os.O_WRONLY))
        elif os.isatty(0):
            self.source, into = os.pipe()
            self._given = self.source
            self._copy_to(lambda: into)
        else:
            self.source = None

    def _copy_to(self, opened: Callable[[], int]) -> None:
        stopped, self._stop = os.pipe()
        self._thread = threading.Thread(target=_copy, args=[opened, stopped], name="malt input", daemon=True)

    def start(self) -> None:
        """To be called once the job has its `source`."""
        if self._given is not None:
            os.close(self._given)
        if self._thread is not None:
            self._thread.start()

    def close(self) -> None:
        """Read no more. Call it after the end of the job."""
        if self._thread is None:
            return
        os.close(self._stop)
        with contextlib.ExitStack() as reading:
            if self._given is None:  # nobody may ever have opened it
                reader = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
                reading.callback(os.close, reader)
            self._thread.join(_CLOSE_S)


def _copy(opened: Callable[[], int], stopped: int) -> None:
    """Copy standard input to opened(), until it or the reader ends, or the other end of `stopped` is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])  # a read in the background fails, and stops nobody
    with contextlib.suppress(BrokenPipeError):
        into = opened()
        try:
            while stopped not in select.select([0, stopped], [], [])[0]:
                try:
                    some = os.read(0, _MOST_NBYTES)
                except OSError:
                    select.select([stopped], [], [], _AGAIN_S)
                    continue
                if not some:
                    break
                while some:
                    some = some[os.write(into, some) :]
        finally:
            os.close(into)
            os.close(stopped)
