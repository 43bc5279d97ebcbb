"""Many ranks in one process, for tests and for graphs larger than a laptop."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

from dstorm import Group, SimulatedTransport
from malt import session
from malt.world import World

Result = TypeVar("Result")


def simulate(function: Callable[[int], Result], ranks: int, seed: int = 0) -> list[Result]:
    """function(rank) on each of `ranks` simulated ranks; the results by rank.

    Inside it malt.rank(), size(), vector(), barrier()... mean the simulated world. Deterministic: a seed gives the
    same interleaving, losses and counters every time. The clock is virtual.

    ValueError: `ranks` is not a number from 1 up, or `seed` not one from 0 up. TypeError: `function` is not one.
    RuntimeError: called inside a simulated rank. An exception in one rank stops the others and is raised, with its
    causes and an error that names the rank. Ctrl-C ends them too.
    """
    if not callable(function):
        raise TypeError(f"function must be callable with a rank, got {function!r}")
    ranks, seed = _whole("ranks", ranks, 1), _whole("seed", seed, 0)
    if session.in_simulation():
        raise RuntimeError("malt.simulate cannot be called inside a simulated rank")
    group = Group(ranks, seed)

    def live(rank: int) -> Result:
        world = World(SimulatedTransport(group, rank))
        session.enter_simulation(world)
        result = function(rank)
        world.close()
        return result

    return group.run(live)


def _whole(name: str, number: Any, least: int) -> int:
    """`number` as an int. ValueError: it is none from `least` up."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or index(number) < least:
        raise ValueError(f"{name} must be a whole number from {least} up, got {number!r}")
    return index(number)
