"""The totals of a Replica, as a frozen record. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from dstorm import Statistics
from dstorm.queues.statistics import added
from vol import Vector


@dataclass(frozen=True)
class ReplicaStatistics(Statistics):
    """The totals of all vectors of a Replica on this rank."""

    every: int = 1
    """The counts between two exchanges, now."""


def replica_statistics(vectors: Iterable[Vector], every: int) -> ReplicaStatistics:
    """The totals of `vectors`, of which each exchange sends all. Local."""
    totals = reduce(added, [vector.statistics() for vector in vectors], Statistics())
    return ReplicaStatistics(**vars(totals), every=every)
