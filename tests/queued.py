"""Queues of simulated ranks, with payloads that show who sent them, and when."""

from __future__ import annotations

import numpy as np
from schedules import complete

from dstorm import Group, Queues, SimulatedTransport, parse

CAPACITY = 40


def run(size, seed, live, sync="asp", depth=2, deadline_s=1.0):
    """live(rank, queues, transport) on all ranks; results by rank."""
    group = Group(size, seed)

    def start(rank):
        transport = SimulatedTransport(group, rank)
        queues = Queues(transport, complete(size, depth), parse(sync), deadline_s)
        return live(rank, queues, transport)

    return group.run(start)


def payload(rank, step):
    """Every byte shows who sent it and when."""
    return np.full(CAPACITY, (rank * 50 + step) % 251, np.uint8)


def check(messages):
    for message in messages:
        assert set(message.payload.tolist()) == {(message.sender * 50 + message.step) % 251}
