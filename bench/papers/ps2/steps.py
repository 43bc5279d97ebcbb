"""Seconds and bytes of a step of Adam and of a dot, in each way, for vectors of several lengths.

malt run -n 2 -m bench.papers.ps2.steps ROUNDS LENGTH ... --json FILE
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

import malt
from bench.harness import jobs, timing, traffic
from bench.harness.document import say
from bench.papers.ps2.ways import WAYS, Exchange, Vectors, Worker

Record = dict[str, Any]
"""Of an operation in one way: seconds, a median of those of the slowest rank; by rank, the bytes that it has sent or
read, and those that it has moved."""
EXCHANGE = "exchange"
"""The operation that is the same in all ways."""


def measured(lengths: Sequence[int], rounds: int) -> list[Record]:
    """The records of vectors of each length. The ways take turns. Collective. In a simulation seconds are virtual."""
    found = []
    for length in lengths:
        if malt.lowest():
            say(f"{malt.size()} ranks, {length:,} elements")
        with ExitStack() as opened:
            w = opened.enter_context(malt.sharded(length))
            vectors = Vectors(w, *(opened.enter_context(w.derive()) for _ in range(3)))
            found += _of(vectors, rounds)
    return found


def _of(vectors: Vectors, rounds: int) -> list[Record]:
    """The records of these vectors. The first run of each counts bytes, and is a warm-up."""
    vectors.w.local[:] = np.linspace(-1, 1, len(vectors.w.local))
    vectors.gradient.local[:] = 0.1
    workers = {way.name: Worker(way, vectors) for way in WAYS}
    works: dict[tuple[str, str], Callable[[], object]] = {(EXCHANGE, ""): Exchange(vectors).once}
    works |= {("adam", name): worker.adam for name, worker in workers.items()}
    works |= {("dot", name): worker.dot for name, worker in workers.items()}
    found: list[Record] = []
    for (operation, way), work in works.items():
        before = traffic.edges(vectors)
        _seconds(work)
        everyone = traffic.gathered(traffic.since(before, traffic.edges(vectors)))
        found.append({
            "length": vectors.w.shape[0], "ranks": malt.size(), "operation": operation, "way": way,
            "sent": [sum(own.values()) for own in everyone], "moved": traffic.moved(everyone),
        })  # fmt: skip
    taken = timing.turns({what: lambda _, work=work: _seconds(work) for what, work in works.items()}, rounds)
    for record, mine in zip(found, taken.values(), strict=True):
        seconds = np.array(mine)
        malt.allreduce(seconds, "max")
        record["seconds"] = statistics.median(seconds.tolist())
    return found


def _seconds(work: Callable[[], object]) -> float:
    """Seconds until all ranks have done it. Collective."""
    malt.barrier()
    start = malt.clock()
    work()
    malt.barrier()
    return malt.clock() - start


def modelled(ranks: int, length: int) -> list[Record]:
    """The records of simulated ranks, each on a host of its own. Local. Seconds are virtual."""
    return malt.simulate(lambda _: measured([length], rounds=1), ranks, network=malt.Network(*jobs.GIGABIT))[0]


if __name__ == "__main__":
    jobs.give(measured([int(length) for length in sys.argv[2:-2]], int(sys.argv[1])))
