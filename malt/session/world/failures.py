"""The ranks that have failed or rejoined: when, and why; and the callbacks of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Moment(NamedTuple):
    """A moment, by two clocks."""

    since_1970_s: float
    """By the clock of the system, which may be set."""
    session_s: float
    """By malt.clock()."""


class Failures:
    """The ranks that have failed, or are not there, as far as this rank knows. The constructor is Local."""

    def __init__(self) -> None:
        self.lost: dict[int, Moment] = {}
        """When each of them failed: when that was found, or when the rank was first seen to be stopped."""
        self.reasons: dict[int, str] = {}
        """Why."""
        self.back: dict[int, Moment] = {}
        """When those that have come back did so last."""
        self.gone: set[int] = set()
        """The ranks that are not there and have not failed: those that have not come so far, or have left as the job
        shrank (malt scale); and those that had failed before this rank came."""
        self.on_death: list[Callable[[int], None]] = []
        """The functions that malt.on_death was given."""
        self.on_join: list[Callable[[int], None]] = []
        """The functions that malt.on_join was given."""

    def note_return(self, rank: int, moment: Moment) -> bool:
        """Note that `rank` is there from now on; return whether this rank did not know it before. Local."""
        is_new = rank in self.gone
        self.gone.discard(rank)
        self.back.update(dict.fromkeys(self.lost.keys() & {rank}, moment))
        return is_new
