"""One thread at a time: of calls that overlap the later one is refused, before it has done anything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from dstorm.errors import OverlappingCalls


class Turn:
    """Whose turn it is with one thing. A hot call takes `lock` itself, without waiting, and else calls `insist`. The
    same thread may take it again: from a function that it calls back, say."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._is_lent = False

    def insist(self, what: str) -> None:
        """Take `lock` after all, where it was only lent. OverlappingCalls: another thread is at it."""
        if self._is_lent:
            self.lock.acquire()
        elif not self.lock.acquire(blocking=False):
            raise OverlappingCalls(
                f"{what}: another thread of this rank is in such a call: they may come from any thread, but one after "
                "the other"
            )

    @contextlib.contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """While the block runs it is this thread's turn. OverlappingCalls: it is another's."""
        self.insist(what)
        try:
            yield
        finally:
            self.lock.release()

    @contextlib.contextmanager
    def lent(self) -> Iterator[bool]:
        """While the block runs, and has True, it is nobody's turn: who comes meanwhile waits."""
        self._is_lent = True
        is_free = self.lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            self._is_lent = False
            if is_free:
                self.lock.release()
