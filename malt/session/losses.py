"""Which ranks have failed: when, and why."""

from __future__ import annotations

from dataclasses import dataclass

from malt.session import session


@dataclass(frozen=True)
class LostRank:
    """A rank that has failed."""

    rank: int
    at: float
    """When that was found, or when the rank was first seen to be stopped: seconds since 1970."""
    reason: str
    """Why it failed, as far as this rank knows."""
    back_at: float | None = None
    """When it was back, as the next incarnation of the rank. None: it is not."""


def lost_ranks() -> list[LostRank]:
    """The ranks that have failed, ascending, as far as this rank knows. Local, once initialized.

    Of a rank that has failed more than once it is the last time. Without survive=True there are none. The call does not
    run the callbacks of malt.on_death.
    """
    world = session.world()
    world.transport.poll_failures(quietly=True)
    known = world.failures
    lost = sorted(known.lost.items())
    return [LostRank(rank, at, known.reasons.get(rank, ""), known.back.get(rank)) for rank, at in lost]
