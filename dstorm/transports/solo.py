"""The world of one: a program that was started alone, with an MPI library or without any."""

from __future__ import annotations

import time

from dstorm.transports.group import Group
from dstorm.transports.simulated import SimulatedTransport


class SoloTransport(SimulatedTransport):
    """One rank with no peers, and real time."""

    def __init__(self, library: str = "no MPI") -> None:
        super().__init__(Group(1), 0)
        self.library = library

    def clock(self) -> float:
        return time.perf_counter()
