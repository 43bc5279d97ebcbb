"""A process that ends with its parent."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_prctl = ctypes.CDLL(None).prctl  # before a fork, in which nothing may be loaded
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Make the system send signal `number` to this process when its parent ends. Call it in the new process. Local.

    Where that is not SIGTERM, this is blocked: it is for the parent, whoever sends it to all.
    """
    _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if number != signal.SIGTERM:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
