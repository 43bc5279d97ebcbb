"""What an exchange takes on a network: simulated on few ranks, extrapolated to many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from dstorm import Network
from malt.commands.plan.measuring import Measured
from malt.session.session import world
from malt.session.simulation import clock, compute, simulate
from malt.session.vectors import vector
from vol import graph as graph_of

NETWORKS: Final[Mapping[str, tuple[float, float]]] = {
    "10 GbE": (25e-6, 1.25e9),
    "100 GbE": (10e-6, 12.5e9),
    "InfiniBand HDR": (1.5e-6, 25e9),
    "WAN 100 Mbit/s": (20e-3, 12.5e6),
}
"""By name, the latency in seconds and the bytes a second of a link."""
GRAPHS: Final = ("all", "exponential", "one-peer", "ring")
SYNCS: Final = ("asp", "bsp")
INTERVALS: Final = (1, 4, 16)
"""How many times the interval of the program."""
RANKS: Final = (2, 4, 16, 64, 256, 1024)
MOST_SIMULATED: Final = 64
_EXCHANGES: Final = 4
_MOST_NBYTES: Final = 1 << 13
"""Longer messages are simulated by short ones that count for more; these are no compact messages either."""


@dataclass(frozen=True)
class Choice:
    """How ranks exchange."""

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
    """The epochs of a measured program on one network."""

    def __init__(self, program: Measured, name: str) -> None:
        self._program, self.name = program, name
        self._known: dict[tuple[str, str, int], float] = {}

    def epoch(self, choice: Choice, ranks: int) -> Epoch:
        """An epoch on so many ranks, each of which has as many rows."""
        program = self._program
        exchanges = program.exchanges / ranks
        compute_s = exchanges * program.compute_s
        exchange_s = exchanges / choice.interval * self.exchange_s(choice.graph, choice.sync, ranks)
        nbytes = exchanges / choice.interval * ranks * peers(choice.graph, ranks) * program.nbytes
        total_s = compute_s + exchange_s
        return Epoch(total_s, nbytes, exchange_s / total_s if total_s else 0.0, ranks > MOST_SIMULATED)

    def exchange_s(self, graph: str, sync: str, ranks: int) -> float:
        """Seconds of one exchange, beside compute. With more ranks than are simulated: by the peers of a rank."""
        key = graph, sync, ranks
        if key not in self._known:
            self._known[key] = (
                self._simulated(graph, sync, ranks)
                if ranks <= MOST_SIMULATED
                else self._extrapolated(graph, sync, ranks)
            )
        return self._known[key]

    def _extrapolated(self, graph: str, sync: str, ranks: int) -> float:
        few, many = MOST_SIMULATED // 4, MOST_SIMULATED
        first, last = (self.exchange_s(graph, sync, size) for size in (few, many))
        more = peers(graph, many) - peers(graph, few)
        slope = max(0.0, (last - first) / more) if more else 0.0
        return last + slope * (peers(graph, ranks) - peers(graph, many))

    def _simulated(self, graph: str, sync: str, ranks: int) -> float:
        program = self._program
        nbytes = int(min(max(program.nbytes, 4), _MOST_NBYTES))
        latency_s, bandwidth = NETWORKS[self.name]
        network = Network(latency_s, bandwidth)
        network.payload_scale = max(1.0, program.nbytes / nbytes)
        merge_s = program.merge_s * peers(graph, ranks)

        def live(rank: int) -> float:
            v = vector(np.zeros(nbytes // 4, np.float32), graph=graph, sync=sync)
            world().transport.barrier()
            start = clock()
            for _ in range(_EXCHANGES):
                compute(merge_s)
                v.scatter()
                v.gather()
            return clock() - start

        return max(simulate(live, ranks, network=network)) / _EXCHANGES


def peers(graph: str, ranks: int) -> int:
    """How many peers a rank sends to in an exchange."""
    if graph == "all":
        return ranks - 1
    return len(graph_of(graph, ranks).out(0))
