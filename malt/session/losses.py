"""Which ranks have failed: when, and why."""

from __future__ import annotations

from dataclasses import dataclass

from malt.session import session


@dataclass(frozen=True)
class LostRank:
    """A rank that has failed."""

    rank: int
    at: float
    """When that was found out, or the rank was first seen to be stopped: seconds since 1970."""
    reason: str
    """Why it failed, as far as this rank knows."""


def lost_ranks() -> list[LostRank]:
    """The ranks that have failed, as far as this one can tell, ascending: none, but for survive=True. What
    malt.on_death was given is not called. Local, once initialized."""
    world = session.world()
    world.transport.poll_failures(quietly=True)
    return [LostRank(rank, at, world.reasons.get(rank, "")) for rank, at in sorted(world.lost.items())]
