"""Sends that go on while the caller computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Sender:
    """A thread that calls functions that send, one after the other, in the order in which they were given. Local."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "malt gradients")
        self._under_way: list[Future[object]] = []

    def send(self, call: Callable[[], object]) -> None:
        """Have the thread call `call`. Local. Any thread may do so."""
        self._under_way.append(self._thread.submit(call))

    def wait(self) -> None:
        """Return once all calls have returned. Local. It raises what the first one raised that failed."""
        under_way, self._under_way = self._under_way, []
        for one in under_way:
            one.result()

    def close(self) -> None:
        """End the thread, after the call that it is in. Local."""
        self._thread.shutdown(wait=False, cancel_futures=True)
