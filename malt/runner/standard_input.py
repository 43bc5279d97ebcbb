"""The standard input of a rank: rank 0 has that of the launcher, and the other ranks read nothing.

The launcher (malt/launch/streams/standard_input.py) gives rank 0 the file itself, over a socket in the folder of
the job. malt/runner/program.py loads this module by its path, so it imports nothing of malt.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import _socket

    from _typeshed import WriteableBuffer

INPUT = "input"
"""The socket in the folder of the job."""
_LONGEST_NBYTES = 100
"""A longer path is no address of a socket (unix(7))."""


def take(folder: str | None, rank: str, is_again: bool = False) -> None:
    """Make the launcher's input the standard input of rank 0, and /dev/null that of the other ranks. Local.

    `folder`: that of the job, or None where the launcher is on another host: rank 0 then has what mpiexec gives it.
    `is_again`: whether the rank was started again: its input was given away.
    """
    if rank == "?" or (rank == "0" and folder is None and not is_again):
        return
    with contextlib.suppress(OSError):  # on several hosts there is none; or the launcher has just ended
        if rank == "0" and folder is not None and not is_again:
            _take_what_is_given(os.path.join(folder, INPUT))
        else:
            _set(os.open(os.devnull, os.O_RDONLY))


@contextlib.contextmanager
def address(path: str) -> Iterator[str]:
    """A block with an address of the socket `path`, which may be too long for one itself."""
    if len(os.fsencode(path)) <= _LONGEST_NBYTES:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def _take_what_is_given(path: str) -> None:
    """Take the file that the launcher gives. OSError."""
    import _socket  # socket itself may be a module of the program

    launcher = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    with address(path) as where:
        launcher.connect(where)
    for _, _, files in launcher.recvmsg(1, _socket.CMSG_SPACE(4))[1]:
        _set(int.from_bytes(files[:4], sys.byteorder))
    if os.isatty(0) and sys.stdin is not None:
        raw = _Terminal(launcher)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), sys.stdin.encoding, sys.stdin.errors)
    else:
        launcher.close()


def _set(source: int) -> None:
    os.dup2(source, 0)
    os.close(source)


class _Terminal(io.FileIO):
    """Standard input, a terminal. The launcher is told of each line that is read, before the program is.

    The terminal has shown its end: so what ranks print next begins a row.
    """

    def __init__(self, launcher: _socket.socket) -> None:
        super().__init__(0, closefd=False)
        self.name = "<stdin>"
        self._launcher = launcher

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read a line, and tell the launcher once it is complete."""
        nbytes = super().readinto(buffer)
        if nbytes and memoryview(buffer)[nbytes - 1] == ord("\n"):
            with contextlib.suppress(OSError):  # the launcher has ended
                self._launcher.send(b"\n")
                self._launcher.recv(1)
        return nbytes
