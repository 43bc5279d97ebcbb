"""Traffic that is no vector's: of sums over all ranks, of sharded vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dstorm import Statistics
from malt.models.common import Array
from malt.session import session
from malt.session.collectives import allreduce


class Counted(NamedTuple):
    """Traffic that is no vector's, as vectors count theirs."""

    statistics: Callable[[], Statistics]
    array: Array = np.empty(0)


def sum_statistics(nbytes: int) -> Statistics:
    """Return the bytes that this rank sends for sums of so many bytes over all ranks. Local.

    To each other rank it sends the block that this one combines, and what is summed here of the block that the other
    combines.
    """
    hosts, size = session.hosts(), session.size()
    far = sum(host != hosts[session.rank()] for host in hosts)
    return Statistics(bytes_sent=2 * nbytes * (size - 1) // size, bytes_across=2 * nbytes * far // size)


def moved(vector: Any) -> Counted:
    """The traffic of a sharded vector: what this rank pulls counts as sent, since its owners do not count it. Local."""

    def statistics() -> Statistics:
        """Those of the vector, with the bytes read among the bytes sent."""
        found: Statistics = vector.statistics()
        return replace(found, bytes_sent=found.bytes_sent + found.bytes_read)

    return Counted(statistics)


class Sums:
    """Sums of arrays over all ranks, by an algorithm of allreduce, and what they send."""

    def __init__(self, algorithm: str = "auto") -> None:
        self._algorithm, self._nbytes = algorithm, 0
        self.traffic = Counted(self._statistics)

    def take(self, array: Array) -> None:
        """Replace `array`, in place, by the sum of the arrays of all ranks. Collective."""
        allreduce(array, "sum", algorithm=self._algorithm)
        self._nbytes += array.nbytes

    def _statistics(self) -> Statistics:
        return sum_statistics(self._nbytes) if self._algorithm == "auto" else session.world().statistics()
