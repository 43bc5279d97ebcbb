"""Estimates the lead of this rank's clock over another's from exchanges that both take part in. Pure.

No rank leaves an allgather before all have entered it. So a rank leaves after the other has entered, and the other
leaves after this one has entered: two bounds, like those of a round trip of NTP (RFC 5905), which several exchanges
narrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Exchange(NamedTuple):
    """The times at which one rank entered and left an exchange, in seconds by its own clock."""

    entered: float
    left: float


class Offset(NamedTuple):
    """The lead of one clock over another, in seconds."""

    seconds: float = 0.0
    error_s: float = 0.0
    """The true offset is not further away than this."""


def offset(own: Iterable[Exchange], other: Iterable[Exchange]) -> Offset:
    """Return the lead of the clock of `own` over that of `other`; both list the same exchanges, at least one."""
    pairs = list(zip(own, other, strict=True))
    least = max(mine.entered - theirs.left for mine, theirs in pairs)
    most = min(mine.left - theirs.entered for mine, theirs in pairs)
    return Offset((least + most) / 2, max(0.0, (most - least) / 2))
