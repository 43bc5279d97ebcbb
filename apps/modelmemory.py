"""Whether the models of all ranks, and what trains and carries them, fit in what memory their hosts have free."""

from __future__ import annotations

import malt
from apps.program import keeps_snapshots
from malt.launch.machine import memory
from malt.world.agreement import exchange

_FIRST_EPOCHS = 10
_DEPTH = 2
"""Messages that wait from each sender, as in malt.vector."""


def queues_nbytes(graph: str, message_nbytes: int, depth: int = _DEPTH) -> int:
    """What the queues of one vector take on this rank: in-degree x depth x message. Local.

    Where ranks may die, any of them may become a neighbour.
    """
    size = malt.size()
    senders = malt.graph(graph, size).sources(malt.rank())
    return (size - 1 if malt.init().transport.mortal else len(senders)) * depth * message_nbytes


def snapshots(epochs: int, tolerance: float = 0.0) -> int:
    """How many models this rank keeps, to measure them at the end, as far as that can be told: with a tolerance the
    last epochs may never come. Local."""
    count = min(epochs, _FIRST_EPOCHS) if tolerance else epochs
    return count if keeps_snapshots() else 0


def check(nbytes: int, what: str, remedy: str) -> None:
    """Before a model is made that takes so much on this rank. Collective.

    ValueError, on all ranks: on some host that is more than is free, with `what` it is that takes it, and a `remedy`.
    """
    transport = malt.init().transport
    told = exchange(transport, [nbytes, memory.free_nbytes()])
    for host in dict.fromkeys(transport.hosts):
        beside = [told[rank] for rank in told if transport.hosts[rank] == host]
        free = min((one for _, one in beside if one is not None), default=None)
        need = sum(one for one, _ in beside)
        if free is not None and need > free:
            ranks = "1 rank" if len(beside) == 1 else f"{len(beside)} ranks"
            where = f"host {host}" if len(set(transport.hosts)) > 1 else "this host"
            raise ValueError(
                f"{what}: {ranks} of {where} {'needs' if len(beside) == 1 else 'need'} {memory.shown(need)}, and "
                f"{memory.shown(free)} of memory are free: {remedy}"
            )
