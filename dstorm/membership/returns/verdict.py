"""The rank that leaves where two are in different collective calls. Pure: no MPI, no clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum


class Verdict(Enum):
    """The action of a rank that is in another collective call than others."""

    WAITS = "the others leave, and it goes on"
    LEAVES = "it has come back, but its program makes another call than the others: it leaves"
    DIFFERS = "the programs differ; or it has finished before the others, and leaves"


def verdict(
    came_in: Sequence[int], rank: int, meets: Collection[int], elsewhere: Collection[int], finished: Collection[int]
) -> tuple[Verdict, int]:
    """Return the action of `rank`, and the rank because of which; itself if it waits.

    `came_in`: by rank, what grows with each rank that has come back; 0: it has not. `meets`: the other live ranks.
    `elsewhere`: those of them that are in another call. `finished`: the ranks in their final barrier, `rank` itself
    among them. Of two ranks in different calls the one that was admitted later leaves. A rank that has finished leaves
    where one elsewhere was admitted before it. Else these were all admitted after it, and each of them leaves once all
    that were before it have finished.
    """

    def earlier(one: int) -> bool:
        """Return whether `one` was admitted before `rank`."""
        return (came_in[one], one) < (came_in[rank], rank)

    if rank in finished:
        causes = [one for one in elsewhere if not came_in[one] or earlier(one)]
        return (Verdict.DIFFERS, causes[0]) if causes else (Verdict.WAITS, rank)
    before = list(filter(earlier, meets))
    if came_in[rank] and before and {*finished} >= {*before}:
        return Verdict.LEAVES, before[0]
    for one in elsewhere:
        if one not in finished and not came_in[one] | came_in[rank]:
            return Verdict.DIFFERS, one
        if one not in finished and earlier(one):
            return Verdict.LEAVES, one
    return Verdict.WAITS, rank
