"""Folders into which one job at a time writes. All calls are local."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

_held: Final[dict[str, int]] = {}
"""The folders that this process holds, each with its file descriptor."""


def hold(folder: str | os.PathLike[str]) -> None:
    """Keep other processes from holding `folder`, until this one ends. Local.

    OSError: another one holds it, as of a job that runs; it cannot be opened. Where the file system has no locks,
    several may hold it.
    """
    real = os.path.realpath(folder)
    if real in _held:
        return
    number = os.open(real, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise BlockingIOError(errno.EWOULDBLOCK, "another job that runs writes there", folder) from None
    except OSError:  # no locks
        pass
    _held[real] = number
