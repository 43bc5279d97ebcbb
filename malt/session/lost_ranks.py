"""The ranks that have failed: when, and why."""

from __future__ import annotations

from dataclasses import dataclass

from malt.session import session


@dataclass(frozen=True)
class LostRank:
    """A rank that has failed."""

    rank: int
    """Its number."""
    at: float
    """When that was found, or when the rank was first seen to be stopped: seconds since 1970."""
    reason: str
    """Why it failed, as far as this rank knows."""
    back_at: float | None = None
    """When it was back, as the next incarnation of the rank. None: it is not."""
    at_s: float = 0.0
    """As `at`, in seconds of malt.clock(), which nobody can set: for comparisons, and durations."""
    back_at_s: float | None = None
    """As `back_at`, by the same clock."""


def lost_ranks() -> list[LostRank]:
    """Return the ranks that have failed, ascending, as far as this rank knows. Local, once initialized.

    For a rank that has failed more than once, this is its last failure. Without survive=True there are none. The call
    does not run the callbacks of malt.on_death.
    """
    world = session.world()
    world.transport.poll_failures(quietly=True)
    known, never = world.failures, (None, None)
    found = []
    for rank, lost in sorted(known.lost.items()):
        back_at, back_at_s = known.back.get(rank, never)
        found.append(LostRank(rank, lost.since_1970_s, known.reasons.get(rank, ""), back_at, lost.session_s, back_at_s))
    return found
