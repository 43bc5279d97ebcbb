"""The standard input of a job: rank 0 has that of the launcher, and the other ranks read nothing.

Open MPI's mpiexec never closes the input of rank 0, and MPICH's gives the other ranks a pipe that never ends. Both read
all that there is, whether rank 0 asks for it or not: a shell that reads its own script, or a list of files, from there
finds nothing left. So ranks set up their input themselves (malt/runner/standard_input.py). The launcher gives rank 0
the file itself, over a socket in the folder of the job, and reads nothing. On several hosts rank 0 of an mpiexec may
not see that folder, and reads the input that mpiexec gives it.

mpiexec runs in a session of its own, where it, and rank 0, can read the terminal even while the launcher is in the
background. So there, and where mpiexec would read a terminal, the launcher reads it, and copies it into a pipe.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from malt.launch.streams.display import is_in_background
from malt.runner import standard_input

_LOCAL_FLAGS = 3
"""Their place in what termios.tcgetattr returns."""
_AGAIN_S = 0.2
"""The interval of the attempts to read a terminal from the background, where it refuses."""
_MOST_NBYTES = 1 << 16
_CLOSE_S = 1.0
"""How long the copying may take to end: a process that a rank has left running may hold the input and not read it."""


class StandardInput:
    """The standard input of one job. `source`: the input of what starts the ranks, as subprocess.Popen takes it.

    `is_passed_on`: whether rank 0 reads the input of mpiexec. note_typed() is called when a user has ended a line,
    which the terminal shows.
    """

    def __init__(self, folder: Path, is_passed_on: bool, note_typed: Callable[[], None] = lambda: None) -> None:
        self.source: int | None = subprocess.DEVNULL
        self._way: _Given | _Copied | None = None
        self._inherited: int | None = None
        if not is_passed_on and not is_in_background(0):
            self._way = _Given(str(folder / standard_input.INPUT), note_typed)
        elif not is_passed_on:
            fifo = folder / standard_input.INPUT
            os.mkfifo(fifo)
            self._way = _Copied(partial(os.open, fifo, os.O_WRONLY), note_typed, fifo)
        elif os.isatty(0):
            self.source, into = os.pipe()
            self._inherited = self.source
            self._way = _Copied(lambda: into, note_typed)
        else:
            self.source = None

    def start(self) -> None:
        """Start to give or to copy. Call it after the start of mpiexec. Local."""
        if self._inherited is not None:
            os.close(self._inherited)
        if self._way is not None:
            self._way.thread.start()

    def close(self) -> None:
        """Stop that. Call it after the end of the job. Local."""
        if self._way is not None:
            self._way.close()


class _Given:
    """Gives standard input to rank 0, which connects to the socket `path`, and hears from it of each line typed."""

    def __init__(self, path: str, note_typed: Callable[[], None]) -> None:
        self._sockets = [socket.socket(socket.AF_UNIX)]
        with standard_input.address(path) as where:
            self._sockets[0].bind(where)
        self._sockets[0].listen(1)
        self._note_typed = note_typed
        self.thread = threading.Thread(target=self._give, name="malt input", daemon=True)

    def close(self) -> None:
        """Give it no more: rank 0 may never have come, and its children may outlive it. Local."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # ends what waits in it
        self.thread.join(_CLOSE_S)
        for one in self._sockets:
            one.close()

    def _give(self) -> None:
        with contextlib.suppress(OSError):
            rank, _ = self._sockets[0].accept()
            self._sockets.append(rank)
            socket.send_fds(rank, [b"0"], [0])
            while rank.recv(1):
                if _is_echoed():
                    self._note_typed()
                rank.send(b"0")


class _Copied:
    """Copies standard input, a terminal, to the file opened(), by which `fifo` is opened if that is given."""

    def __init__(self, opened: Callable[[], int], note_typed: Callable[[], None], fifo: Path | None = None) -> None:
        self._fifo = fifo
        stopped, self._stop = os.pipe()
        self.thread = threading.Thread(
            target=_copy, args=[opened, stopped, note_typed], name="malt input", daemon=True
        )  # fmt: skip

    def close(self) -> None:
        """Stop to copy. Local."""
        os.close(self._stop)
        with contextlib.ExitStack() as reading:
            if self._fifo is not None:  # nobody may ever have opened it
                reader = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
                reading.callback(os.close, reader)
            self.thread.join(_CLOSE_S)


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
    """Return whether standard input is a terminal that shows what is typed."""
    with contextlib.suppress(termios.error):
        return bool(termios.tcgetattr(0)[_LOCAL_FLAGS] & termios.ECHO)
    return False
