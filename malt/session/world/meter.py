"""The interface `Meter`: what `malt plan` is told of the exchanges of Replicas. Pure."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Measures a program, or makes a simulated one take its time. A world has none otherwise."""

    def made(self, nbytes: int, every: int) -> None:
        """A Replica is made, of arrays of so many bytes, that exchanges every so many counts."""

    def begin(self, nbytes: int) -> None:
        """An exchange of so many bytes with each peer begins."""

    def end(self) -> None:
        """It has ended."""
