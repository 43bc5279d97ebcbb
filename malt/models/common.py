"""Collectives around a training: what ranks know alike, how they begin alike, means, sums, and what these send.

A rank that comes back keeps what it has in these calls, until the others have admitted it: they have made them before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost, Statistics
from malt.session import session
from malt.session.collectives import allgather, allreduce, barrier, broadcast
from malt.session.world.means import mean

Array = NDArray[Any]


@dataclass(frozen=True)
class Sharing:
    """The options of exchanges: the arguments of malt.vector and malt.Exchanges."""

    graph: Any
    sync: str
    every: Any
    """What is between two exchanges."""


def gathered(value: Any) -> dict[int, Any]:
    """The `value` of each live rank, by rank, ascending, as malt.allgather takes and returns it. Collective."""
    if session.size() == 1:
        return {0: value}
    return {rank: one for rank, one in enumerate(allgather(value)) if one is not None}


def by_rank(value: Any) -> dict[int, Any]:
    """The `value` of each live rank, by rank, ascending. A value is anything that JSON can represent. Collective.

    A rank that comes back has its own alone until the others have admitted it: they have made these calls before.
    """
    if session.world().is_outside:
        return {session.rank(): value}
    return {rank: reports[0] for rank, reports in enumerate(allgather([value])) if reports is not None}


def of_lowest(value: Any) -> Any:
    """The `value` of the lowest live rank. Collective."""
    return next(iter(by_rank(value).values()))


def same_start(arrays: Sequence[Array]) -> None:
    """Replace `arrays`, in place, by those of the lowest live rank. Collective.

    A rank that comes back keeps its own, until the others have admitted it.
    """
    for array in arrays:
        is_there = session.world().is_outside
        while not is_there:
            root = min(by_rank(None))
            try:
                broadcast(array, root)
                is_there = True
            except PeerLost:
                continue


def compared_parts(content: bytes, owners: Sequence[int]) -> dict[str, Array]:
    """The SHA-256 of what each of `owners` has: the same on all ranks, and changing with each part. Collective.

    PeerLost, on all ranks: a part is missing.
    """
    parts = allgather(np.frombuffer(hashlib.sha256(content).digest(), np.uint8))
    barrier()  # which raises it where a part is missing
    return {"parts": np.stack([parts[rank] for rank in owners])}


def common_mean(arrays: Sequence[Array], counts: bool = True, else_all: bool = False) -> None:
    """Replace `arrays`, in place, by their means over the ranks that count: the same bits on all ranks. Collective.

    `counts` says whether this rank counts. If no rank counts, all ranks do with `else_all`; without it the arrays stay
    as they are. Ranks whose arrays hold NaN or infinity are left out, unless all do. The lowest rank names them on
    stderr.
    """
    world = session.world()
    if not world.is_outside:
        mean(world.transport, arrays, counts=counts, else_all=else_all)


class Counted(NamedTuple):
    """Traffic that is no vector's, as vectors count theirs."""

    statistics: Callable[[], Statistics]
    array: Array = np.empty(0)


def moved(vector: Any) -> Counted:
    """The traffic of a sharded vector: what this rank pulls counts as sent, since its owners do not count it. Local."""

    def statistics() -> Statistics:
        """Those of the vector, with the bytes read among the bytes sent."""
        found: Statistics = vector.statistics()
        return replace(found, bytes_sent=found.bytes_sent + found.bytes_read)

    return Counted(statistics)


def sum_statistics(nbytes: int) -> Statistics:
    """Return the bytes that this rank sends for sums of so many bytes over all ranks. Local.

    To each other rank it sends the block that this one combines, and what is summed here of the block that the other
    combines.
    """
    hosts, size = session.hosts(), session.size()
    far = sum(host != hosts[session.rank()] for host in hosts)
    return Statistics(bytes_sent=2 * nbytes * (size - 1) // size, bytes_across=2 * nbytes * far // size)


class Sums:
    """Sums of arrays over all ranks, by an algorithm of allreduce, and what they send, as vectors count theirs."""

    array: Array = np.empty(0)

    def __init__(self, algorithm: str = "auto") -> None:
        self._algorithm, self._nbytes = algorithm, 0

    def take(self, array: Array) -> None:
        """Replace `array`, in place, by the sum of the arrays of all ranks. Collective."""
        allreduce(array, "sum", algorithm=self._algorithm)
        self._nbytes += array.nbytes

    def statistics(self) -> Statistics:
        """Return what this rank has sent. Local. Algorithms other than "auto" count it."""
        return sum_statistics(self._nbytes) if self._algorithm == "auto" else session.world().statistics()
