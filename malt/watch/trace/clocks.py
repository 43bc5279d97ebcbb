"""How far the clock of this rank is ahead of another rank's, by exchanges that both take part in. Pure.

Nobody leaves an allgather before all have entered it. So a rank leaves later than the other one has entered, and the
other one later than it has entered: two bounds, as of a round trip of NTP (RFC 5905), which several exchanges narrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Exchange(NamedTuple):
    """When one rank entered an exchange, and when it left it, in seconds by its own clock."""

    entered: float
    left: float


class Offset(NamedTuple):
    """How far one clock is ahead of another, in seconds."""

    seconds: float = 0.0
    error_s: float = 0.0
    """The true offset is not further away than this."""


def offset(own: Iterable[Exchange], other: Iterable[Exchange]) -> Offset:
    """How far the clock of `own` is ahead of that of `other`; both list the same exchanges, at least one."""
    pairs = list(zip(own, other, strict=True))
    least = max(mine.entered - theirs.left for mine, theirs in pairs)
    most = min(mine.left - theirs.entered for mine, theirs in pairs)
    return Offset((least + most) / 2, max(0.0, (most - least) / 2))
