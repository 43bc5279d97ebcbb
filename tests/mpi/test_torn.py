"""Senders and receivers without waits, over MPI: no gather returns a torn message, and the counters add up."""

from __future__ import annotations

import time

import numpy as np
import pytest
from covering import pairs

import malt


def is_one_message(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


@pytest.mark.parallel
@pytest.mark.parametrize(
    ("averages", "length", "depth"), pairs(("copies", "averages in place"), (1_000, 100_000, 1_000_000), (1, 2))
)
def test_no_torn_reads(length, depth, averages, request):
    seconds = request.config.getoption("--torn-seconds")
    vector = malt.vector(length, graph="ring", depth=depth)
    mixed = received = 0

    def inspect(own, updates):
        nonlocal mixed, received
        received += len(updates)
        mixed += sum(not is_one_message(update.values) or update.values[0] != update.step for update in updates)

    def take():
        nonlocal mixed, received
        if averages == "copies":
            vector.gather(inspect)
            return
        vector.array[:] = 0
        if came := vector.gather():
            received += came.count
            mixed += not is_one_message(vector.array) or vector.array[0] != came.steps[0] / 2

    malt.barrier()
    end = time.monotonic() + seconds
    sends = malt.rank() % 2 == 0
    while time.monotonic() < end:
        if sends:
            vector.array[:] = vector.step + 1
            vector.scatter()
        else:
            take()
    malt.barrier()
    if not sends:
        take()  # however busy the machine was, the last message is whole by now
    senders = vector.statistics().peers
    malt.barrier()
    upstream, downstream = (malt.rank() - 1) % malt.size(), (malt.rank() + 1) % malt.size()
    sent = np.frombuffer(
        b"".join(malt.init().transport.allgather(np.int64(senders[downstream].sent).tobytes())), np.int64
    )
    edge = vector.statistics().peers[upstream]
    vector.close()
    if not sends:
        print(f"sent {sent[upstream]} received {received} mixed {mixed} {edge}")
        assert mixed == 0
        assert edge.gathered == received > 0
    assert sent[upstream] == edge.gathered + edge.overwritten + edge.refused + edge.pending
