"""A lock for calls that must not overlap: the later of two is refused before it has done anything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from dstorm.errors import OverlappingCalls


class CallLock:
    """A lock that one thread holds while it calls an object.

    A hot call takes `lock` itself, without waiting, and calls `insist` where it does not get it. A thread that holds
    it may take it again, for example in a callback.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._lending = threading.RLock()
        """Held by who lends `lock`, for longer than that. So who holds it and does not get `lock` overlaps a call: no
        thread lends `lock` then, nor begins to."""

    def insist(self, what: str) -> None:
        """Take `lock`; wait for it only while it is lent. Local. OverlappingCalls: another thread holds it."""
        if self.lock.acquire(blocking=False):
            return
        with self._lending:
            if not self.lock.acquire(blocking=False):
                raise OverlappingCalls(
                    f"{what}: another thread of this rank is in such a call: they may come from any thread, but only "
                    "one at a time"
                )

    @contextlib.contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """Hold `lock` while the block runs. Local. OverlappingCalls: another thread holds it."""
        self.insist(what)
        try:
            yield
        finally:
            self.lock.release()

    @contextlib.contextmanager
    def lent(self) -> Iterator[bool]:
        """Keep `lock` from other threads while the block runs: they wait, and are not refused. Local.

        Yields whether it was free. Where it was not, another thread is at work, and the block must do nothing.
        """
        is_lending = self._lending.acquire(blocking=False)
        is_free = is_lending and self.lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self.lock.release()
            if is_lending:
                self._lending.release()
