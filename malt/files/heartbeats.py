"""Heartbeats of a rank that works on a file, or on anything else that may take longer than the deadline.

Ranks that wait for this one go on waiting as long as it gives heartbeats. A piece of such work gives one when it is
done. So work that goes on is a sign of life, however long it takes; and work that stands still, on a file server that
does not answer, is none. The main thread alone gives them: MPI may let no other one call it.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from typing import IO, Any, Final, cast

_PIECE_NBYTES: Final = 1 << 20
"""The most that is read or written at once."""
_SYNC_NBYTES: Final = 1 << 26
"""After so many bytes a file that is written is synced: all of it at its end might take longer than the deadline."""

_give: Callable[[], object] = bool


def give() -> None:
    """Give a heartbeat, if there is a session. Local."""
    if threading.current_thread() is threading.main_thread():
        _give()


def give_by(heartbeat: Callable[[], object]) -> None:
    """Have `give` call heartbeat(). Local."""
    global _give
    _give = heartbeat


class _File(io.FileIO):
    """A file each piece of which gives a heartbeat. Its buffer asks for the next piece where it has got less."""

    _unsynced = 0

    def readinto(self, buffer: Any) -> int:
        """As FileIO.readinto, of one piece."""
        nbytes = super().readinto(memoryview(buffer)[:_PIECE_NBYTES])
        give()
        return nbytes

    def readall(self) -> bytes:
        """As FileIO.readall, piece by piece."""
        return b"".join(iter(lambda: self.read(_PIECE_NBYTES), b""))

    def read(self, nbytes: int | None = -1) -> bytes:
        """As FileIO.read, of at most one piece where `nbytes` is given."""
        if nbytes is None or nbytes < 0:
            return self.readall()
        found = super().read(min(nbytes, _PIECE_NBYTES))
        give()
        return found

    def write(self, data: Any) -> int:
        """As FileIO.write, of one piece; the file is synced now and then."""
        nbytes = super().write(memoryview(data)[:_PIECE_NBYTES])
        self._unsynced += nbytes
        if self._unsynced >= _SYNC_NBYTES:
            os.fsync(self.fileno())
            self._unsynced = 0
        give()
        return nbytes


def opened(path: str | os.PathLike[str], mode: str) -> IO[bytes]:
    """Return a binary file, as open(path, mode) does, which gives heartbeats while it is read or written. Local."""
    raw = _File(path, mode)
    if "+" in mode:
        return cast("IO[bytes]", io.BufferedRandom(raw))
    return cast("IO[bytes]", io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw))
