"""Queues of simulated ranks, on hosts as named, with payloads that show who sent them, and when."""

import numpy as np
from carried import run_carried
from schedules import complete

from dstorm import Queues, parse

CAPACITY = 40


def run(live, hosts="ab", seed=0, sync="asp", depth=2, deadline_s=5.0, capacity=CAPACITY, **link):
    """live(rank, queues, transport) on a rank for each letter of `hosts`; results by rank. `link`: see run_carried."""

    def start(transport):
        queues = Queues(transport, complete(len(hosts), depth, capacity), parse(sync), deadline_s)
        return live(transport.rank, queues, transport)

    return run_carried(start, hosts, seed, **link)


def payload(rank, step, nbytes=CAPACITY):
    """Every byte shows who sent it and when."""
    return np.full(nbytes, (rank * 50 + step) % 251, np.uint8)


def gathered(queues, peers, newest=False):
    """The senders and steps of the messages of a gather, which are whole. They are acknowledged."""
    messages = queues.receive(lambda: peers, newest=newest)
    for one in messages:
        assert set(one.payload.tolist()) == {(one.sender * 50 + one.step) % 251}
    queues.acknowledge(messages)
    return [(one.sender, one.step) for one in messages]
