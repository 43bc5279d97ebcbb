"""Tells whether a rank that has reported its end still runs Python, for example to close files. The agent is sent with
this module: it imports nothing of malt.

Until then the rank holds a lock on a file in the folder of the job (malt/runner/departure.py). The system releases it
when the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

LOCK = "interpreter-{}"


def has_closed(folder: str, rank: int) -> bool:
    """Return whether the interpreter of `rank`, of this host, has ended. True where it could not take a lock. Local."""
    with contextlib.suppress(FileNotFoundError):
        file = os.open(os.path.join(folder, LOCK.format(rank)), os.O_RDWR)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # this file system has no locks
            return True
        finally:
            os.close(file)
    return True
