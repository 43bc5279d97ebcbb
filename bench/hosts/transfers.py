"""Measures exchanges of two ranks on two hosts beside MPI's own calls.

    malt run -n 2 --hosts a:1,b:1 -m bench.hosts.transfers PART ... --json FILE

A part gives lists of seconds, by name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import malt
from bench.harness import jobs
from bench.harness.timing import alternate

Times = dict[str, list[float]]

FLOATS = 10
MODEL = 47_237
"""The floats of the SVM's model: 189 KB."""
_COMPUTE_S = 0.005


def _exchange(v: malt.Vector) -> None:
    v.scatter()
    v.gather()


def exchanges(comm: MPI.Intracomm, floats: int, rounds: int, calls: int) -> Times:
    """Seconds of an exchange in lockstep, and of a blocking Allreduce of as much. Collective."""
    v, total = malt.vector(np.ones(floats, np.float32), sync="bsp"), np.ones(floats, np.float32)
    work = {"bsp": lambda: _exchange(v), "Allreduce": lambda: comm.Allreduce(MPI.IN_PLACE, total)}
    times = alternate(work, rounds=rounds, calls=calls, comm=comm)
    v.close()
    return times


def small(comm: MPI.Intracomm) -> Times:
    """40 B in lockstep. Collective."""
    return exchanges(comm, FLOATS, 15, 100)


def far_small(comm: MPI.Intracomm) -> Times:
    """The same where a round trip takes long. Collective."""
    return exchanges(comm, FLOATS, 5, 5)


def far_model(comm: MPI.Intracomm) -> Times:
    """189 KB in lockstep, where a round trip takes long. Collective."""
    return exchanges(comm, MODEL, 5, 5)


def far_held(comm: MPI.Intracomm) -> Times:
    """189 KB under asp, where a round trip takes long: how long a scatter and a gather hold up the loop. Collective."""
    v = malt.vector(np.ones(MODEL, np.float32), sync="asp")
    times: list[float] = []
    malt.barrier()
    for _ in range(400):
        end = time.perf_counter() + _COMPUTE_S
        while time.perf_counter() < end:
            v.array += 1e-9
        start = time.perf_counter()
        _exchange(v)
        times.append(time.perf_counter() - start)
    v.close()
    return {"asp": times[10:]}


PARTS: dict[str, Callable[[MPI.Intracomm], Times]] = {
    part.__name__: part for part in (small, far_held, far_small, far_model)
}


def main() -> None:
    malt.init()
    found = {}
    for name in sys.argv[1:-2]:
        found[name] = PARTS[name](MPI.COMM_WORLD)
        malt.barrier()
    jobs.give(found)


if __name__ == "__main__":
    main()
