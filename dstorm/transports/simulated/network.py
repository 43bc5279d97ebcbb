"""The network between simulated ranks: what it is like, when a message arrives, what a run has taken. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from dstorm.words import count, shown

MEMORY_BANDWIDTH: Final = 1e10
"""Bytes a second of a copy in memory: a message inside a host is one."""
SMALL_NBYTES: Final = 64
"""The size of a header."""


class NetworkTotals(NamedTuple):
    """The totals of a simulation.

    `time_s`: virtual seconds until the last rank was done. `bytes`: what the hosts have sent to each other, with
    headers. `waited_s`: by rank, the virtual seconds in which it neither computed nor copied: it waited for other ranks
    or for the network.
    """

    time_s: float = 0.0
    bytes: int = 0
    waited_s: tuple[float, ...] = ()


class Network:
    """A network for malt.simulate.

    Each host has a link to a switch that is never the bottleneck. `latency_s`: seconds from host to host.
    `bandwidth`: bytes per second of a link, in each direction. `hosts`: the host name of each rank, by rank; None: each
    rank has its own host. `jitter_s`: each message takes up to this many seconds longer, as determined by the seed of
    the simulation.

    A message of n bytes takes latency_s + n / bandwidth seconds. A link carries one message at a time in each
    direction: the messages of a host leave one after the other, and arrive at a host one after the other, in the order
    in which they reach its link. A rank whose call waits until a message is complete learns this after another
    latency_s. Within a host a message is a copy in memory, at 10 GB/s, made by the sender.

    Under asp and ssp a scatter queues its messages to other hosts and returns: they are sent while its rank continues,
    and a message that has not started to leave when the next one comes is joined with it, as between real hosts.

    A collective call takes, after the last rank has arrived, the latency of its rounds, and the time for the most bytes
    on one link. A barrier of a vector has two rounds. Most others, such as malt.barrier, first compare arguments.

    ValueError: a number is negative, not finite, or no number; the bandwidth is 0; `hosts` is not a list of names.
    """

    def __init__(
        self, latency_s: float, bandwidth: float, hosts: Sequence[str] | None = None, jitter_s: float = 0.0
    ) -> None:  # fmt: skip
        self.latency_s, self.jitter_s = _seconds("latency_s", latency_s), _seconds("jitter_s", jitter_s)
        self.bandwidth = _seconds("bandwidth", bandwidth)
        if not self.bandwidth:
            raise ValueError("bandwidth must be above 0 bytes a second, got 0")
        if isinstance(hosts, str) or not all(isinstance(host, str) for host in hosts or ()):
            raise ValueError(f"hosts must be the names of the ranks' hosts, by rank, got {shown(hosts)}")
        self.hosts = None if hosts is None else tuple(hosts)
        self.totals = NetworkTotals()
        """The totals of the last simulation that has ended."""
        self.payload_scale = 1.0
        """How many bytes each byte of a longer message than SMALL_NBYTES counts for: a small array stands for a large
        one."""
        self.buffers = True
        """Whether ranks have outgoing buffers. Without, a scatter under asp and ssp waits until its messages are there,
        as where MPI's thread level is below MULTIPLE."""

    def hosts_of(self, size: int) -> tuple[str, ...]:
        """The name of the host of each of `size` ranks. ValueError: `hosts` has another number of names."""
        if self.hosts is None:
            return tuple(f"host-{rank}" for rank in range(size))
        if len(self.hosts) != size:
            raise ValueError(f"hosts has {count(len(self.hosts), 'name')}, for {count(size, 'rank')}")
        return self.hosts

    def charged(self, nbytes: int) -> float:
        """Return the number of bytes that a message of `nbytes` counts for."""
        return nbytes if nbytes <= SMALL_NBYTES else nbytes * self.payload_scale

    def __repr__(self) -> str:
        return f"Network(latency_s={self.latency_s:g}, bandwidth={self.bandwidth:g}, jitter_s={self.jitter_s:g})"


class HostLinks:
    """The links of the hosts of `size` ranks: until when each is busy, and what it has carried."""

    def __init__(self, network: Network, size: int, random: Random) -> None:
        self.network, self.hosts = network, network.hosts_of(size)
        self._random = random
        self._leaving_until = dict.fromkeys(self.hosts, 0.0)
        self._entering_until = dict.fromkeys(self.hosts, 0.0)
        self.sent = [0.0] * size
        """By rank, the bytes that it has sent to other hosts."""

    def are_apart(self, rank: int, peer: int) -> bool:
        """Return whether two ranks are on different hosts."""
        return self.hosts[rank] != self.hosts[peer]

    def leave(self, rank: int, nbytes: float, now: float) -> float:
        """Return the time at which the first byte of a message that `rank` sends at `now` reaches the link of its
        receiver."""
        host, network = self.hosts[rank], self.network
        start = max(now, self._leaving_until[host])
        self._leaving_until[host] = start + nbytes / network.bandwidth
        self.sent[rank] += nbytes
        return start + network.latency_s + self._late_s()

    def enter(self, rank: int, nbytes: float, now: float) -> float:
        """Return the time at which the last byte of a message for `rank` is there, whose first byte reaches its link at
        `now`."""
        host = self.hosts[rank]
        end = max(now, self._entering_until[host]) + nbytes / self.network.bandwidth
        self._entering_until[host] = end
        return end

    def collective_s(self, call: str, lengths: Sequence[Sequence[int]]) -> float:
        """Seconds of a collective call once all ranks have entered it. What it moves is added to `sent`.

        `lengths`: by rank, the bytes that it sends; one number: those that it sends to all.
        """
        hosts = list(dict.fromkeys(self.hosts))
        if len(hosts) < 2:
            return 0.0
        sent, received = dict.fromkeys(hosts, 0.0), dict.fromkeys(hosts, 0.0)
        for rank, row in enumerate(lengths):
            own = self.hosts[rank]
            if len(row) == 1:  # once to each of the other hosts, which pass it on
                parts = [(host, row[0]) for host in hosts if host != own]
                sent[own] += row[0]
            else:
                parts = [(self.hosts[peer], nbytes) for peer, nbytes in enumerate(row) if self.are_apart(rank, peer)]
                sent[own] += sum(nbytes for _, nbytes in parts)
            for host, nbytes in parts:
                received[host] += nbytes
                self.sent[rank] += nbytes
        most = max(*sent.values(), *received.values())
        return self._rounds(call, len(hosts)) * self.network.latency_s + most / self.network.bandwidth

    def _rounds(self, call: str, hosts: int) -> int:
        """Return the number of messages that follow each other, with those of the barrier before each collective call.
        """
        fixed, of_tree = _ROUNDS.get(call, (0, 0))
        return _OF_BARRIER + fixed + of_tree * (hosts - 1).bit_length()

    def _late_s(self) -> float:
        return self._random.random() * self.network.jitter_s if self.network.jitter_s else 0.0


_OF_BARRIER: Final = 2
"""A rank tells all others that it has come, and learns that they have it."""
_ROUNDS: Final = {"allgather": (0, 2), "broadcast": (0, 1), "alltoall": (2, 0), "allreduce": (1, 1)}
"""Rounds beside the barrier, and rounds for each doubling of the hosts, by the primitive of the transport."""


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {shown(value)}")
    return float(value)
