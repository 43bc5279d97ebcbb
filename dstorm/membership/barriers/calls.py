"""The name of the collective call that a rank is in, as its user knows it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from dstorm.trace import Trace


class Calls:
    """The names of the collective calls of one rank.

    An exchange of bytes has the name of the user's call that it is part of. So ranks in different calls notice it, and
    do not take each other's bytes for their own.
    """

    def __init__(self) -> None:
        self._current = ""

    @property
    def is_any(self) -> bool:
        """True if this rank is in a collective call that has a name. Local."""
        return bool(self._current)

    @contextmanager
    def calling(self, what: str, trace: Trace | None = None) -> Iterator[None]:
        """Name the collective calls in the block `what`; the outermost name counts. `trace`: notes the call. Local."""
        outer = self._current
        self._current = outer or what
        try:
            with nullcontext() if trace is None else trace.call(what):
                yield
        finally:
            self._current = outer

    def name(self, what: str) -> str:
        """The name of the call that `what` is part of now; `what` itself where it is part of none. Local."""
        return self._current or what
