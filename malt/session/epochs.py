"""`malt.epochs` and `malt.scale`: the epochs that this rank trains, and how many ranks there are."""

from __future__ import annotations

from collections.abc import Iterator

from dstorm.errors import Refused
from malt.session import session
from malt.session.world.crew import Crew
from vol import arguments


def epochs(stop: int, start: int = 0) -> Iterator[int]:
    """Yield the epochs from `start` to `stop` - 1 that this rank trains, like range(start, stop). Local.

    On a rank that has joined others (malt run --rejoin, --elastic) they begin with the first epoch that no rank had
    begun when it joined. malt.shard deals the rows of an epoch among the ranks that train it: all ranks deal alike,
    even if they come to it at different times, and each row of each epoch is in one part, even if ranks join and leave.
    If one fails in an epoch, the others share its rows from their next epoch on.

    If the job has shrunk (malt scale), or only this rank has got SIGTERM (--elastic), a rank that is to leave does so
    before its next epoch: SystemExit(0) is raised in the loop.

    TypeError, ValueError: `stop` or `start` is not an integer, or one is negative. A rank that has rejoined and calls
    it before its first vector or Replica ends with a message.
    """
    first, end = arguments.whole("malt.epochs: start", start, 0), arguments.whole("malt.epochs: stop", stop, 0)
    world = session.world()
    if world.crew is None:
        return iter(range(first, end))
    if world.is_outside:
        raise Refused(world.rank, "malt.epochs must be called before malt.vector and malt.Replica")
    return _epochs(world.crew, first, end)


def _epochs(crew: Crew, first: int, end: int) -> Iterator[int]:
    epoch = max(first, crew.begin_loop())
    try:
        while epoch < end:
            session.alive()  # what this rank knows of the others is as new as can be
            if (epoch := crew.begin(epoch)) < end:
                yield epoch
            epoch += 1
    finally:
        crew.end_loop()


def scale(ranks: int) -> None:
    """Change the number of ranks of the job: more are started, or the last ones leave. Local; any one rank may call it.

    The job was started by malt run --elastic. malt.size() is that number from then on; malt.alive() lists the ranks
    that are present. Ranks that leave do so before their next epoch (malt.epochs), or in their next malt call in a
    program without it. New ranks are in malt.alive() once they have made what the others have (malt.on_join).

    RuntimeError: the number of ranks of this job does not change. TypeError, ValueError: `ranks` is not an integer, or
    not within the bounds of --elastic.
    """
    wanted = arguments.whole("malt.scale: ranks", ranks, 1)
    crew = session.world().crew
    if crew is None or not crew.is_elastic:
        raise RuntimeError("malt.scale: the number of ranks of this job does not change: start it with malt run "
                           "--elastic MIN:MAX")  # fmt: skip
    try:
        crew.scale(wanted)
    except ValueError as error:
        raise ValueError(f"malt.scale: {error}") from None
