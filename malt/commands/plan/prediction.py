"""Predicts the time of an exchange on a network: simulated on few ranks, extrapolated to many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dstorm import Network
from malt.commands.plan.measuring import Measured
from malt.session.session import world
from malt.session.simulation import clock, compute, simulate
from malt.session.vectors.vector import vector
from vol import graph as graph_of

NETWORKS: Final[Mapping[str, tuple[float, float]]] = {
    "10 GbE": (25e-6, 1.25e9),
    "100 GbE": (10e-6, 12.5e9),
    "InfiniBand HDR": (1.5e-6, 25e9),
    "WAN 100 Mbit/s": (20e-3, 12.5e6),
}
"""By name, the latency in seconds and the bytes a second of a link."""
OWN: Final = "yours"
"""The name of a network that the user describes."""
GRAPHS: Final = ("all", "exponential", "one-peer", "ring")
BY_HOST: Final = "hierarchical"
"""The graph that is tried besides where hosts have several ranks."""
SYNCS: Final = ("asp", "bsp")
INTERVALS: Final = (1, 4, 16)
"""How many times the interval of the program."""
RANKS: Final = (2, 4, 16, 64, 256, 1024)
MOST_SIMULATED: Final = 64
_EXCHANGES: Final = 4
_FIRST: Final = 2
"""Exchanges before these, until messages of others have come."""
_MOST_NBYTES: Final = 1 << 13
"""Longer messages are simulated by short ones that count for more; these are no compact messages either."""


class Choice(NamedTuple):
    """One way to exchange."""

    graph: str
    sync: str
    interval: int
    """How many times the interval of the program."""


@dataclass(frozen=True)
class Epoch:
    """An epoch of all ranks."""

    seconds: float
    nbytes: float
    """What all ranks send."""
    exchange_share: float
    """The part of the time in which a rank does not compute."""
    is_extrapolated: bool


class Prediction:
    """The epochs of a measured program on one of `networks`. `slots`: how many ranks a host has."""

    def __init__(
        self, program: Measured, name: str, slots: int = 1, networks: Mapping[str, tuple[float, float]] = NETWORKS
    ) -> None:  # fmt: skip
        self._program, self.name, self._slots = program, name, slots
        self._latency_s, self._bandwidth = networks[name]
        self._known: dict[tuple[str, str, int, int], float] = {}

    def epoch(self, choice: Choice, ranks: int) -> Epoch:
        """An epoch on so many ranks, each of which has as many rows."""
        program = self._program
        exchanges = program.exchanges / ranks / choice.interval
        apart_s, exchange_s = program.compute_s * choice.interval, self.exchange_s(choice, ranks)
        sent = ranks * across(choice.graph, ranks, self._slots) * program.nbytes
        most = math.ceil(ranks / self._slots) * self._bandwidth * (apart_s + exchange_s)
        total_s = exchanges * (apart_s + exchange_s)
        share = exchange_s / (apart_s + exchange_s) if total_s else 0.0
        return Epoch(total_s, exchanges * min(sent, most), share, ranks > MOST_SIMULATED)

    def exchange_s(self, choice: Choice, ranks: int) -> float:
        """Seconds of one exchange, beside compute. With more ranks than are simulated: by the peers of a rank.

        Where ranks wait for each other the interval changes nothing.
        """
        interval = choice.interval if choice.sync == "asp" else 1
        key = choice.graph, choice.sync, interval, ranks
        if key not in self._known:
            one = choice._replace(interval=interval)
            few = ranks <= MOST_SIMULATED
            self._known[key] = self._simulated(one, ranks) if few else self._extrapolated(one, ranks)
        return self._known[key]

    def _extrapolated(self, choice: Choice, ranks: int) -> float:
        few, many, slots = MOST_SIMULATED // 4, MOST_SIMULATED, self._slots
        first, last = (self.exchange_s(choice, size) for size in (few, many))
        first_peers, last_peers, peers = (across(choice.graph, size, slots) for size in (few, many, ranks))
        more = last_peers - first_peers
        slope = max(0.0, (last - first) / more) if more else 0.0
        return last + slope * (peers - last_peers)

    def _simulated(self, choice: Choice, ranks: int) -> float:
        program = self._program
        nbytes = int(min(max(program.nbytes, 4), _MOST_NBYTES))
        network = Network(self._latency_s, self._bandwidth, hosts_of(ranks, self._slots))
        network.payload_scale = max(1.0, program.nbytes / nbytes)
        apart_s = program.compute_s * choice.interval

        def live(rank: int) -> float:
            """The virtual seconds of the measured exchanges of one of the simulated ranks."""
            v, start = vector(np.zeros(nbytes // 4, np.float32), graph=choice.graph, sync=choice.sync), 0.0
            world().transport.barrier()
            for exchange in range(_FIRST + _EXCHANGES):
                if exchange == _FIRST:
                    start = clock()
                compute(apart_s)
                v.scatter()
                compute(program.merge_s * v.gather().count)
            return clock() - start

        return max(0.0, max(simulate(live, ranks, network=network)) / _EXCHANGES - apart_s)


def hosts_of(ranks: int, slots: int) -> list[str]:
    """The host of each rank, where each host has `slots` ranks."""
    return [f"host-{rank // slots}" for rank in range(ranks)]


def across(graph: str, ranks: int, slots: int = 1) -> float:
    """Return how many messages a rank sends to other hosts in an exchange: the mean of the first host."""
    here = min(slots, ranks)
    if graph == "all":
        return ranks - here
    built = graph_of(graph, ranks, hosts=hosts_of(ranks, slots) if graph == BY_HOST else None)
    sent = sum(peer >= here for table in built.phases for rank in range(here) for peer in table[rank])
    return sent / here / built.period
