"""The admitted incarnation of each rank, and the barrier since which it takes part. Pure: no MPI, no clock.

A failed rank may be started again, as its next incarnation. The lowest live rank admits it, between two collective
calls of its own. It publishes a stamp: the incarnation, and the number of the last barrier that goes on without it. All
pass stamps on, and the larger of two stamps of a rank counts. So they come to the same view, as with failures. A
failure is one of the incarnation that the stamp beside it names, so no failure of a former one counts any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

_BARRIER_BITS = 40
Stamps = Sequence[int]
"""The stamp of each rank."""


def stamp(incarnation: int, entered: int = 0) -> int:
    """The stamp of an incarnation that takes part in all barriers after number `entered`."""
    return incarnation << _BARRIER_BITS | entered


def incarnation_in(one: int) -> int:
    """The incarnation in the stamp `one`."""
    return one >> _BARRIER_BITS


def incarnation_of(stamps: Stamps, rank: int) -> int:
    """The incarnation of `rank`; 0: its first one."""
    return incarnation_in(stamps[rank])


def entered_of(stamps: Stamps, rank: int) -> int:
    """The number of the last barrier that went on without `rank`, or 0."""
    return stamps[rank] & (1 << _BARRIER_BITS) - 1


def newer(stamps: Stamps, than: Stamps) -> dict[int, int]:
    """The stamps, by rank, that are larger in `stamps`."""
    return {} if stamps is than else {rank: one for rank, one in enumerate(stamps) if one > than[rank]}


def merged(some: Stamps, others: Stamps) -> tuple[int, ...]:
    """The larger stamp of each rank."""
    return tuple(map(max, some, others))


def with_stamp(stamps: Stamps, rank: int, one: int) -> tuple[int, ...]:
    """`stamps` with the stamp `one` of `rank`."""
    return (*stamps[:rank], one, *stamps[rank + 1 :])


def still_failed(failed: int, stamps: Stamps, now: Stamps) -> int:
    """The ranks of the mask `failed`, published beside `stamps`, whose failed incarnations are not former ones."""
    for rank in newer(now, stamps):
        failed &= ~(1 << rank)
    return failed


class Verdict(Enum):
    """The action of a rank that is in another collective call than others."""

    WAITS = "the others leave, and it goes on"
    LEAVES = "it has come back, but its program makes another call than the others: it leaves"
    DIFFERS = "the programs differ; or it has finished before the others, and leaves"


def verdict(
    stamps: Stamps, rank: int, meets: Collection[int], elsewhere: Collection[int], finished: Collection[int]
) -> tuple[Verdict, int]:
    """Return the action of `rank`, and the rank because of which; itself if it waits.

    `meets`: the ranks that its call is with. `elsewhere`: those of them that are in another one. `finished`: the ranks
    in their final barrier, `rank` itself among them. Of two ranks in different calls the one that was admitted later
    leaves. A rank that has finished leaves where one elsewhere was admitted before it. Else these were all admitted
    after it, and each of them leaves once all that were before it have finished.
    """

    def earlier(one: int) -> bool:
        """Return whether `one` was admitted before `rank`."""
        return (stamps[one], one) < (stamps[rank], rank)

    if rank in finished:
        causes = [one for one in elsewhere if not stamps[one] or earlier(one)]
        return (Verdict.DIFFERS, causes[0]) if causes else (Verdict.WAITS, rank)
    before = list(filter(earlier, meets))
    if stamps[rank] and before and {*finished} >= {*before}:
        return Verdict.LEAVES, before[0]
    for one in elsewhere:
        if one not in finished and not stamps[one] | stamps[rank]:
            return Verdict.DIFFERS, one
        if one not in finished and earlier(one):
            return Verdict.LEAVES, one
    return Verdict.WAITS, rank
