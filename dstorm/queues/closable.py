"""The end of what peers write to: any thread may close it, at any time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from dstorm.call_lock import CallLock
from dstorm.errors import ClosedError
from dstorm.transport import Transport, Window
from dstorm.waits import interruption


class Closable(ABC):
    """The base of what one rank closes, and all ranks free."""

    def __init__(self) -> None:
        self.closed = self._is_closing = False
        self.renew_locks()

    def renew_locks(self) -> None:
        """Make its locks anew, in a process that was forked: it has no other thread. Local."""
        self.call_lock = CallLock()
        """The caller holds it while it sends or receives. `close` takes it."""
        self.reading = threading.RLock()
        """Held by who reads the memory without that lock, such as for statistics, and by who frees it. Who holds both
        has taken `call_lock` first."""

    def _opened(self, transport: Transport, nbytes: int) -> Window:
        """Return its window, and count it as open. Collective."""
        transport.opened()
        try:
            return transport.window(nbytes)
        except BaseException:
            transport.closed()
            raise

    def check_open(self, what: str) -> None:
        """Check that it is open, after a call of the user's code, which may have closed it. Local. ClosedError."""
        if self.closed:
            raise ClosedError(f"{what}: the vector was closed meanwhile")

    def notice(self) -> None:
        """Check, between two polls of a wait, whether another thread closes it. ClosedError."""
        if self._is_closing:
            raise ClosedError("it was closed, by another thread, while this call waited")

    @interruption.whole
    def close(self) -> None:
        """Publish to all neighbours that this rank has closed: no rank waits for it or sends to it. One-sided.

        What it has sent can still be received. A second call does nothing. A call of another thread ends first; where
        it waits, it raises ClosedError.
        """
        self._is_closing = True
        with self.call_lock.lock:
            if not self.closed:
                self.closed = True
                self._leave()

    @abstractmethod
    def _leave(self) -> None:
        """Publish that this rank has closed. One-sided."""

    @abstractmethod
    def free(self) -> None:
        """Free the memory; views of it become invalid. Collective, once all ranks have closed. The caller holds
        `call_lock` and `reading`."""
