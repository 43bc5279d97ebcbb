"""Many ranks in one process, for tests and for graphs larger than a laptop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dstorm import Group, SimulatedTransport
from malt.session import session
from malt.world.world import World
from vol import arguments

Result = TypeVar("Result")


def simulate(function: Callable[[int], Result], ranks: int, seed: int = 0) -> list[Result]:
    """function(rank) on each of `ranks` simulated ranks; the results by rank.

    Inside it malt.rank(), size(), vector(), barrier()... mean the simulated world. Deterministic: a seed gives the
    same interleaving, losses and counters every time. The clock is virtual. Ranks take turns in the thread of the
    caller: each has context variables of its own, a copy of the caller's; threading.local() is one for all. A thread
    that a rank starts may use its vectors, but not wait for other ranks.

    ValueError: `ranks` is not a number from 1 up, or `seed` not one from 0 up. TypeError: `function` is not one.
    ImportError: several ranks need the library greenlet, the extra `simulate`.
    RuntimeError: called inside a simulated rank. An exception in one rank stops the others and is raised, with its
    causes and an error that names the rank. Ctrl-C ends them too.
    """
    if not callable(function):
        raise TypeError(f"function must be callable with a rank, got {function!r}")
    try:
        ranks, seed = arguments.whole("ranks", ranks, 1), arguments.whole("seed", seed, 0)
    except TypeError as error:
        raise ValueError(str(error)) from None
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
