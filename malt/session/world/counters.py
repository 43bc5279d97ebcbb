"""The counters that a rank shows while it runs: totals of what it holds open, and the ranks that it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from malt.session.world.world import World

if TYPE_CHECKING:
    from malt.watch.record import Counters


def reader(world: World) -> Callable[[], Counters]:
    """A function that returns the counters of this rank. Local; any thread may call it at any time."""
    members = world.members
    return lambda: counters(world, members)


def counters(world: World, members: Sequence[int]) -> Counters:
    """The counters of this rank. Local; any thread may call it at any time.

    `members`: the number that mpiexec has given each rank.
    """
    from malt.watch.record import Counters  # takes some ms, which the start of a job need not wait

    totals = [vector.statistics() for vector in tuple(world.vectors)]
    totals += [world.freed, world.statistics(), world.chunk_statistics()]
    edges = [(members[peer], edge) for one in totals for peer, edge in one.peers.items()]
    sent: Counter[int] = Counter()
    for peer, edge in edges:
        sent[peer] += edge.bytes_sent
    wait = world.transport.waiting
    wait_s = world.transport.clock() - wait.since if wait else 0.0
    split = world.split(sum(one.waited_s for one in totals) + wait_s)
    return Counters(
        sent=dict(sent),
        read=sum(one.bytes_read for one in totals),
        across=sum(one.bytes_across for one in totals),
        merged=sum(one.gathered for one in totals),
        overwritten=sum(one.overwritten for one in totals),
        lag=max((edge.lag.last for _, edge in edges if edge.lag.count), default=0),
        **split._asdict(),
        every=world.every,
        waits_for=tuple(members[rank] for rank in wait.ranks) if wait else (),
        call=wait.what if wait else "",
        wait_s=wait_s,
    )
