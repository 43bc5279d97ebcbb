"""`malt.simulate`: many ranks in one process, for tests and for graphs larger than a laptop; a world of one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from dstorm import Group, SimulatedTransport, SoloTransport
from malt.session import session
from malt.world.world import World
from vol import arguments

Result = TypeVar("Result")


def simulate(function: Callable[[int], Result], ranks: int, seed: int = 0) -> list[Result]:
    """Run function(rank) on each of `ranks` simulated ranks, and return the results by rank. Local.

    Inside `function`, malt.rank(), size(), vector(), barrier()... refer to the simulated world. A run is deterministic:
    the same `seed` gives the same interleaving, overwritten messages and counters. The clock is virtual. Ranks take
    turns in the thread of the caller. Each has its own copy of the caller's context variables; all share one
    threading.local(). A thread that a rank starts may use its vectors, but not wait for other ranks.

    An exception in one rank stops the others and is raised, with its causes and an error that names the rank. Ctrl-C
    stops all.

    ValueError: `ranks` is not a whole number from 1 up, or `seed` not one from 0 up. TypeError: `function` is not
    callable. ImportError: several ranks need the library greenlet, of the extra `simulate`. RuntimeError: the call is
    made inside a simulated rank.
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


def alone(function: Callable[[], Result]) -> Result:
    """The result of function() in a world of one, also within a simulated rank. Local.

    There malt.rank() is 0, and collective calls wait for nobody.
    """
    context = copy_context()
    world = World(SoloTransport())
    context.run(session.replace_world, world)
    try:
        return context.run(function)
    finally:
        context.run(world.close)
