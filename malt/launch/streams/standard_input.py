"""The standard input of a job: rank 0 reads that of the launcher, and the other ranks read nothing.

Open MPI's mpiexec never closes the input of rank 0, and MPICH's gives the other ranks a pipe that never ends. So on one
host the ranks set up their input themselves (malt/runner/program.py): rank 0 reads a FIFO in the folder of the job, to
which the launcher copies its input. On several hosts rank 0 reads the input that mpiexec gives it.

The launcher reads a terminal itself. mpiexec runs in a session of its own, where it could read the terminal even while
the launcher is in the background.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

from malt.runner.leaving import INPUT

_LOCAL_FLAGS = 3
"""Their place in what termios.tcgetattr returns."""
_AGAIN_S = 0.2
"""The interval of the attempts to read a terminal from the background, where it refuses."""
_MOST_NBYTES = 1 << 16
_CLOSE_S = 1.0
"""How long the copying may take to end: a process that a rank has left running may hold the input and not read it."""


class StandardInput:
    """The standard input of one job. `source`: the input of mpiexec, as subprocess.Popen takes it.

    note_typed() is called when a user has ended a line, which the terminal shows.
    """

    def __init__(self, folder: Path, is_spread: bool, note_typed: Callable[[], None] = lambda: None) -> None:
        self._note_typed = note_typed
        self.source: int | None = subprocess.DEVNULL
        self._thread: threading.Thread | None = None
        self._given: int | None = None
        self._fifo = folder / INPUT
        if sys.__stdin__ is None:  # closed: descriptor 0 may be another file by now
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
        self._thread = threading.Thread(
            target=_copy, args=[opened, stopped, self._note_typed], name="malt input", daemon=True
        )

    def start(self) -> None:
        """Start to copy. Call it after the start of mpiexec. Local."""
        if self._given is not None:
            os.close(self._given)
        if self._thread is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop the copying. Call it after the end of the job. Local."""
        if self._thread is None:
            return
        os.close(self._stop)
        with contextlib.ExitStack() as reading:
            if self._given is None:  # nobody may ever have opened it
                reader = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
                reading.callback(os.close, reader)
            self._thread.join(_CLOSE_S)


def _copy(opened: Callable[[], int], stopped: int, note_typed: Callable[[], None]) -> None:
    """Copy standard input to the file opened(), until either ends, or the other end of the pipe `stopped` is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])  # a read in the background fails, and does not stop us
    ready = select.poll()  # select takes no number above 1023, and each rank has two pipes
    for number in (0, stopped):
        ready.register(number, select.POLLIN)
    with contextlib.suppress(BrokenPipeError):
        into = opened()
        try:
            while all(number != stopped for number, _ in ready.poll()):
                try:
                    some = os.read(0, _MOST_NBYTES)
                except OSError:
                    time.sleep(_AGAIN_S)
                    continue
                if not some:
                    break
                if some.endswith(b"\n") and _is_echoed():
                    note_typed()
                while some:
                    some = some[os.write(into, some) :]
        finally:
            os.close(into)
            os.close(stopped)


def _is_echoed() -> bool:
    """Whether standard input is a terminal that shows what is typed."""
    with contextlib.suppress(termios.error):
        return bool(termios.tcgetattr(0)[_LOCAL_FLAGS] & termios.ECHO)
    return False
