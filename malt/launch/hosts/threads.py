"""The same on each of several hosts at once, a thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TypeVar

_Host = TypeVar("_Host")
_Found = TypeVar("_Found")
_LOOK_S = 0.25


def on_each(hosts: Iterable[_Host], work: Callable[[_Host], _Found]) -> list[_Found]:
    """Return work(host) for each of `hosts`, in their order. Local.

    Where this thread is interrupted the others are left behind. They end with this process, and what `work` has begun
    on another host when its connection ends.
    """

    def run(host: _Host, future: Future[_Found]) -> None:
        """Do the work of one host."""
        try:
            future.set_result(work(host))
        except BaseException as error:
            future.set_exception(error)

    futures = []
    for host in hosts:
        futures.append(Future[_Found]())
        threading.Thread(target=run, args=[host, futures[-1]], daemon=True).start()
    while wait(futures, _LOOK_S).not_done:
        pass  # a signal that came just before a wait without a limit would be seen at its end only
    return [future.result() for future in futures]
