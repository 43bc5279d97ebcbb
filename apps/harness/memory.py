"""Checks that models, training state and queues of all ranks fit in the free memory of their hosts."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import malt
from apps.harness.agreement import keeps_snapshots
from malt.models import by_rank

_FIRST_EPOCHS = 10
_DEPTH = 2
"""Slots for each sender, as in malt.vector."""


def queues_nbytes(options: Namespace, message_nbytes: int, depth: int = _DEPTH) -> int:
    """The bytes that the queues of one vector take on this rank: in-degree x depth x message. Local.

    Where ranks may fail, any rank may become a neighbour. A rank that is started again while the job shrinks may have a
    number that the smaller job lacks, until it leaves.
    """
    size = malt.size()
    senders = malt.graph(options.graph, size, options.degree).sources(min(malt.rank(), size - 1))
    return len(malt.init().reachable(senders)) * depth * message_nbytes


def snapshots(epochs: int, tolerance: float = 0.0) -> int:
    """Return how many models this rank keeps to measure them at the end. Local.

    It is an estimate if there is a tolerance, as training may then end early.
    """
    count = min(epochs, _FIRST_EPOCHS) if tolerance else epochs
    return count if keeps_snapshots() else 0


@dataclass(frozen=True)
class Need:
    """The memory that training takes on this rank, without the data."""

    nbytes: int
    what: str
    """The cause, in the user's terms: an option, a line of a file."""
    remedy: str


def check(need: Need) -> None:
    """Check that each host has the memory that its ranks need, before a model is made. Collective.

    ValueError, on all ranks: a host has too little. The message names the cause and the remedy.
    """
    hosts, reports = malt.hosts(), by_rank([need.nbytes, malt.free_memory()])
    for host in dict.fromkeys(hosts):
        beside = [reports[rank] for rank in reports if hosts[rank] == host]
        free = min((one for _, one in beside if one is not None), default=None)
        total = sum(one for one, _ in beside)
        if free is not None and total > free:
            ranks = "1 rank" if len(beside) == 1 else f"{len(beside)} ranks"
            where = f"host {host}" if len(set(hosts)) > 1 else "this host"
            raise ValueError(
                f"{need.what}: {ranks} of {where} {'needs' if len(beside) == 1 else 'need'} {_shown(total)}, and "
                f"{_shown(free)} of memory are free: {need.remedy}"
            )


def _shown(nbytes: int) -> str:
    """A size such as "1.2 GB"."""
    return f"{nbytes / 1e9:,.1f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:,.1f} MB"
