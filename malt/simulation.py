"""Many ranks in one process, for tests and for graphs larger than a laptop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dstorm import Group, SimulatedTransport
from malt import session

Result = TypeVar("Result")


def simulate(function: Callable[[int], Result], ranks: int, seed: int = 0) -> list[Result]:
    """function(rank) on each of `ranks` simulated ranks; the results by rank.

    Inside it malt.rank(), size(), vector(), barrier()... mean the simulated world. Deterministic: a seed gives the
    same interleaving, losses and counters every time. The clock is virtual.

    ValueError: `ranks` is not a number from 1 up. RuntimeError: called inside a simulated rank. An exception in one
    rank stops the others and is raised, from one that names the rank.
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"ranks must be a whole number from 1 up, got {ranks!r}")
    if session.in_simulation():
        raise RuntimeError("malt.simulate cannot be called inside a simulated rank")
    group = Group(ranks, seed)

    def live(rank: int) -> Result:
        world = session.World(SimulatedTransport(group, rank))
        session.enter_simulation(world)
        result = function(rank)
        world.close()
        return result

    return group.run(live)
