"""The standard input of a job: rank 0 has that of the launcher, and the other ranks read nothing.

Open MPI's mpiexec never closes the input of rank 0, and MPICH's gives the other ranks a pipe that never ends. Both read
all that there is, whether rank 0 asks for it or not: a shell that reads its own script, or a list of files, from there
finds nothing left. So ranks set up their input themselves (malt/runner/standard_input.py). The launcher gives rank 0
the file itself, over a socket in the folder of the job, and reads nothing. Where rank 0 is on another host it reads the
input that mpiexec gives it.

Rank 0 is in another session than the launcher, where it could read the terminal even while the launcher is in the
background. So it finds nothing to read where the job was begun there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import termios
import threading
from collections.abc import Callable
from pathlib import Path

from malt.launch.streams.display import is_in_background
from malt.runner import standard_input

_LOCAL_FLAGS = 3
"""Their place in what termios.tcgetattr returns."""
_CLOSE_S = 1.0
"""How long the thread that waits for rank 0 may take to end."""


class StandardInput:
    """The standard input of one job. `source`: the input of what starts the ranks, as subprocess.Popen takes it.

    `is_passed_on`: whether rank 0 reads the input of mpiexec. note_typed() is called when a user has ended a line,
    which the terminal shows: rank 0 says so.
    """

    def __init__(
        self, folder: Path, is_passed_on: bool = False, note_typed: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        self.source = None if is_passed_on else subprocess.DEVNULL
        self._given = os.open(os.devnull, os.O_RDONLY) if is_in_background(0) else os.dup(0)
        self._sockets = [socket.socket(socket.AF_UNIX)]
        with standard_input.address(str(folder / standard_input.INPUT)) as where:
            self._sockets[0].bind(where)
        self._sockets[0].listen(1)
        self._note_typed = note_typed
        self.thread = threading.Thread(target=self._give, name="malt input", daemon=True)

    def start(self) -> None:
        """Wait for rank 0 from here on. Call it after the start of mpiexec. Local."""
        self.thread.start()

    def close(self) -> None:
        """Wait no more: rank 0 may never have come, and its children may outlive it. Call it after the job. Local."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # ends what waits in it
        self.thread.join(_CLOSE_S)
        for one in self._sockets:
            one.close()
        os.close(self._given)

    def _give(self) -> None:
        with contextlib.suppress(OSError):
            rank, _ = self._sockets[0].accept()
            self._sockets.append(rank)
            socket.send_fds(rank, [b"0"], [self._given])
            while rank.recv(1):
                if _is_echoed():
                    self._note_typed()
                rank.send(b"0")


def _is_echoed() -> bool:
    """Return whether standard input is a terminal that shows what is typed."""
    with contextlib.suppress(termios.error):
        return bool(termios.tcgetattr(0)[_LOCAL_FLAGS] & termios.ECHO)
    return False
