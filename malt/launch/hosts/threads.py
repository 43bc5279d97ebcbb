"""The same on each of several hosts at once, a thread each. Ctrl-C ends all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

_Host = TypeVar("_Host")
_Found = TypeVar("_Found")
Note = Callable[[Callable[[], object]], None]
"""Takes what ends something that was begun: a call that may be repeated."""
_LOOK_S, _POLL_S, _ENDS_S = 0.25, 0.05, 5.0


def on_each(hosts: Iterable[_Host], work: Callable[[_Host, Note], _Found]) -> list[_Found]:
    """Return work(host, note) for each of `hosts`, in their order. Local.

    What `work` begins it notes. Where it raises for a host, or this thread is interrupted, all that was noted is ended,
    and the exception is raised.
    """
    begun: list[Callable[[], object]] = []
    pool = ThreadPoolExecutor(len(given) if (given := list(hosts)) else 1)
    futures = [pool.submit(work, host, begun.append) for host in given]
    try:
        for future in futures:
            while wait([future], _LOOK_S).not_done:
                pass  # a signal that came just before a wait without a limit would be seen at its end only
        return [future.result() for future in futures]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        last = time.monotonic() + _ENDS_S  # Python's own end would wait for the threads without a limit
        while wait(futures, _POLL_S).not_done and time.monotonic() < last:
            for end in list(begun):
                end()
        raise
    finally:
        pool.shutdown(wait=False)
