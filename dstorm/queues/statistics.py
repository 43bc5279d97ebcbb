"""The counters of a vector, as frozen records. Pure: no MPI, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dstorm.queues.neighbours import of_other_hosts


@dataclass(frozen=True)
class Lag:
    """The lag of merged updates: the receiver's step - the update's step. It is negative for a sender ahead."""

    count: int = 0
    """Number of updates merged."""
    min: int = 0
    """Smallest lag."""
    mean: float = 0.0
    """Mean lag."""
    max: int = 0
    """Largest lag."""
    last: int = 0
    """Lag of the update that was merged last."""


class LagCounter:
    """A counter of lags, update by update. Local."""

    __slots__ = ("_count", "_last", "_max", "_min", "_sum")

    def __init__(self) -> None:
        self._count = self._sum = self._min = self._max = self._last = 0

    def note(self, lag: int) -> None:
        """Count one more update, with this lag."""
        if not self._count or lag < self._min:
            self._min = lag
        if not self._count or lag > self._max:
            self._max = lag
        self._count += 1
        self._sum += lag
        self._last = lag

    def record(self) -> Lag:
        """The lag of the updates counted so far."""
        mean = self._sum / self._count if self._count else 0.0
        return Lag(self._count, self._min, mean, self._max, self._last)


@dataclass(frozen=True)
class EdgeStatistics:
    """Totals of the traffic with one peer, in both directions."""

    sent: int = 0
    """Messages of this rank's scatters to the peer."""
    gathered: int = 0
    """Messages from the peer that were merged."""
    overwritten: int = 0
    """Messages from the peer that were never merged, because a newer one of the peer took their place, or all ranks had
    agreed on a model since."""
    pending: int = 0
    """Messages from the peer that wait in this rank's memory."""
    torn_retries: int = 0
    """Copies that were discarded: the peer has overwritten the slot meanwhile, or not all of the message had come."""
    refused: int = 0
    """Messages from the peer that failed a check: wrong length, encoding or row numbers, or values not finite."""
    bytes_sent: int = 0
    """Payload bytes published in the peer's memory: what has left."""
    waited_s: float = 0.0
    """Seconds spent waiting for the peer, from the first poll on: a message that comes in the first microseconds is not
    waited for."""
    lag: Lag = Lag()
    """Lag of the merged updates, in steps."""
    bytes_read: int = 0
    """Payload bytes read from the peer's memory, by pulls; or received from it, by an algorithm of malt.allreduce."""
    bytes_across: int = 0
    """Those of `bytes_sent` that went to another host, and those that pulls have moved from one: also what lies between
    rows and is read with them, and what says whether rows are whole. So each byte counts at one rank."""
    superseded: int = 0
    """Messages to the peer, on another host, that never left by themselves: the next one took their place, or took up
    what they held."""


@dataclass(frozen=True)
class Statistics(EdgeStatistics):
    """Totals of one vector on this rank.

    When no message is on its way, the sender's `sent` equals its `superseded` plus the receiver's gathered +
    overwritten + refused + pending.
    """

    peers: Mapping[int, EdgeStatistics] = field(default_factory=dict)
    """The totals by peer."""


def total(peers: Mapping[int, EdgeStatistics], waited_s: float) -> Statistics:
    """The totals over `peers`.

    `waited_s`: the time that this rank has waited. It may be less than the sum over `peers`, as a wait may be for
    several of them.
    """
    edges = list(peers.values())
    return Statistics(
        sent=sum(edge.sent for edge in edges),
        gathered=sum(edge.gathered for edge in edges),
        overwritten=sum(edge.overwritten for edge in edges),
        pending=sum(edge.pending for edge in edges),
        torn_retries=sum(edge.torn_retries for edge in edges),
        refused=sum(edge.refused for edge in edges),
        bytes_sent=sum(edge.bytes_sent for edge in edges),
        bytes_read=sum(edge.bytes_read for edge in edges),
        bytes_across=sum(edge.bytes_across for edge in edges),
        superseded=sum(edge.superseded for edge in edges),
        waited_s=waited_s,
        lag=_pooled([edge.lag for edge in edges if edge.lag.count]),
        peers=dict(peers),
    )


def located(
    peers: Mapping[int, EdgeStatistics], hosts: Sequence[str], rank: int, pulled: Mapping[int, int] | None = None
) -> dict[int, EdgeStatistics]:  # fmt: skip
    """`peers`, with the bytes that `rank` has moved across hosts. `hosts`: the host of each rank.

    `pulled`: the bytes that pulls have moved, by peer: no other rank counts them as sent.
    """
    far = of_other_hosts(hosts, rank, peers)
    moved = {peer: edge.bytes_sent + (pulled or {}).get(peer, 0) for peer, edge in peers.items()}
    return {peer: replace(edge, bytes_across=moved[peer]) if peer in far else edge for peer, edge in peers.items()}


def added(one: Statistics, other: Statistics) -> Statistics:
    """The totals of two vectors together."""
    peers: dict[int, EdgeStatistics] = {}
    for peer in {*one.peers, *other.peers}:
        edges = [each.peers[peer] for each in (one, other) if peer in each.peers]
        peers[peer] = total(dict(enumerate(edges)), sum(edge.waited_s for edge in edges))
    return total(peers, one.waited_s + other.waited_s)


def _pooled(lags: Iterable[Lag]) -> Lag:
    lags = list(lags)
    if not lags:
        return Lag()
    count = sum(lag.count for lag in lags)
    mean = sum(lag.mean * lag.count for lag in lags) / count
    return Lag(count, min(lag.min for lag in lags), mean, max(lag.max for lag in lags), lags[-1].last)
