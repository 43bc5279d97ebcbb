"""`malt.simulate`: many ranks in one process, for tests and for large graphs; their time; a world of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

import numpy as np

from dstorm import Network, SoloTransport
from dstorm.words import shown
from malt.session import session
from malt.session.world.world import World
from vol import arguments

Result = TypeVar("Result")


def simulate(
    function: Callable[[int], Result], ranks: int, seed: int = 0, network: Network | None = None
) -> list[Result]:  # fmt: skip
    """Run function(rank) on each of `ranks` simulated ranks, and return the results by rank. Local.

    Inside `function`, malt.rank(), size(), vector(), barrier()... refer to the simulated session. A run is
    deterministic: the same `seed` gives the same interleaving, overwritten messages and counters. The clock is virtual.
    Ranks take turns in the thread of the caller. Each has its own copy of the caller's context variables; all share one
    threading.local(). A thread that a rank starts may use its vectors, but not wait for other ranks. It is on that rank
    only if it runs in a copy of its context, as contextvars.copy_context().run: else malt.rank() is 0 of 1 there.

    `network`: messages take the time that they would take on it. A rank's clock then advances in malt.compute, by its
    messages, and in waits. Real work between malt calls takes no time. `network.totals` has the time, the bytes and the
    waits of the simulation.

    An exception in one rank stops the others and is raised, with its causes and an error that names the rank. Ctrl-C
    stops all.

    ValueError: `ranks` is not an integer of at least 1, or `seed` not one of at least 0; `network` has hosts for
    another number of ranks. TypeError: `function` is not callable, or `network` is no malt.Network. ImportError:
    several ranks need the library greenlet, of the extra `simulate`. RuntimeError: the call is made inside a simulated
    rank.
    """
    if not callable(function):
        raise TypeError(f"function must be callable with a rank, got {shown(function)}")
    try:
        ranks, seed = arguments.whole("ranks", ranks, 1), arguments.whole("seed", seed, 0)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if session.in_simulation():
        raise RuntimeError("malt.simulate cannot be called inside a simulated rank")
    if not isinstance(network, Network | None):
        raise TypeError(f"network must be a malt.Network, got {shown(network)}")
    from dstorm import Group, SimulatedTransport, TimedGroup

    group = Group(ranks, seed) if network is None else TimedGroup(ranks, seed, network)

    def live(rank: int) -> Result:
        world = World(SimulatedTransport(group, rank))
        world.begun_at = world.launched_at = 0.0
        session.enter_simulation(world)
        result = function(rank)
        group.done(rank)
        world.close()
        return result

    return group.run(live)


def compute(seconds: float) -> None:
    """Advance the clock of this simulated rank by `seconds` of computation, during which other ranks run. Local.

    In a real session it does nothing, because real work takes its time. So one program can run in both.

    ValueError: `seconds` is not a finite number of at least 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, np.number)) or not 0 <= seconds < math.inf:
        raise ValueError(f"malt.compute takes a finite number of seconds of at least 0, got {shown(seconds)}")
    transport = session.world().transport
    if seconds:
        transport.compute(float(seconds))


def clock() -> float:
    """Return the seconds since the session began on this rank; in a simulation virtual seconds. Local.

    It never goes back.
    """
    return session.world().seconds


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
