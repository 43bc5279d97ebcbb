"""The base of vectors and blocks: how they are closed, what becomes of them after a fork, their statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from dstorm import ClosedError, Statistics
from dstorm.membership import children
from dstorm.queues.closable import Closable

_AnyShared = TypeVar("_AnyShared", bound="Shared")


class Shared(ABC):
    """The base of what ranks share. `memory`: what peers write to."""

    is_sharded = False
    """Whether each rank has a part of it, and takes what others push until all ranks have come to its end."""
    disowned = False
    """Whether it belongs to the rank from which this process was forked."""

    def __init__(self, name: str, memory: Closable) -> None:
        self.name = name
        self._memory = memory
        self._final: Statistics | None = None

    @property
    def closed(self) -> bool:
        """True if this rank has closed it."""
        return self._memory.closed

    @property
    def can_free(self) -> bool:
        """True if this rank has closed it, and needs no memory that `free` frees. Local."""
        return self._final is not None

    def statistics(self) -> Statistics:
        """Return the totals of this rank's traffic; after close, those at the close. Local.

        `peers` holds the neighbours of this rank, and the former neighbours with which it exchanged a message. Any
        thread may call it at any time.
        """
        if self._final is None:
            with self._memory.reading:  # from here on it is not freed, or was closed before
                if self.disowned:
                    self._check_open()
                return self._final or self._statistics()
        return self._final

    def close(self) -> None:
        """Close it on this rank. One-sided. A second call does nothing.

        No rank waits for this one any longer, and none sends to it. Peers can still receive what it sent. `array` stays
        usable. Any thread may call it at any time. If another thread waits in a call, that call raises ClosedError;
        `close` returns after it.
        """
        self.leave()

    def leave(self) -> None:
        """Close it on this rank, whatever the others do. One-sided. A second call does nothing."""
        if self._final is None and not self.disowned:
            self._memory.close()
            with self._memory.reading:
                self._final = self._final or self._at_close()

    def disown(self, disowned: bool) -> None:
        """Set, after a fork, whether it belongs to the parent process, and is closed here. Local."""
        self._memory.renew_locks()
        self.disowned = disowned
        self._memory.closed |= disowned

    def free(self) -> None:
        """Free the memory. Collective. All ranks have closed it before."""
        with self._memory.call_lock.lock, self._memory.reading:
            self._free()

    def _free(self) -> None:
        """Free what this class keeps of the memory, then the memory."""
        self._memory.free()

    def __enter__(self: _AnyShared) -> _AnyShared:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _at_close(self) -> Statistics:
        """The totals at the close. It is called once."""
        return self._statistics()

    @abstractmethod
    def _statistics(self) -> Statistics:
        """The totals so far."""

    def _check_open(self) -> None:
        if self._memory.closed:
            raise ClosedError(f"{self.name}: {children.refusal()}" if self.disowned else f"{self.name} is closed")
