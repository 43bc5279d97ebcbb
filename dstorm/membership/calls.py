"""The collective call that a rank is in, as its user knows it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Calls:
    """Names what one rank does with the others: an exchange of bytes is part of the call that its user has made. Ranks
    in different calls would else take each other's bytes for their own."""

    def __init__(self) -> None:
        self._current = ""

    @contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """As `Transport.calling`. Local."""
        outer = self._current
        self._current = outer or what
        try:
            yield
        finally:
            self._current = outer

    def name(self, what: str) -> str:
        """The call that `what`, which is done now, is part of; itself, if none. Local."""
        return self._current or what
