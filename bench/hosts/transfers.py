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
from numpy.typing import NDArray

import malt
from bench.harness import jobs
from bench.harness.timing import alternate

Times = dict[str, list[float]]

FLOATS = 10
MODEL = 47_237
"""The floats of the SVM's model: 189 KB."""
LARGE = 1_000_000
_MESSAGES = 30
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


def stream(comm: MPI.Intracomm) -> Times:
    """4 MB back to back: seconds a message between arrivals, and of a raw Put and Flush. Collective.

    `copied`: of a raw Put and Flush, to a rank that copies each message meanwhile, as a gather does.
    """
    v = malt.vector(np.ones(LARGE, np.float32), graph={0: [1], 1: [0]}, sync="notify-ack")
    raw = MPI.Win.Allocate(2 * v.array.nbytes, comm=comm)
    raw.Lock_all()
    np.asarray(raw.tomemory())[:] = 0
    times: Times = {"notify-ack": [], "Put + Flush": [], "copied": []}
    for _ in range(7):
        times["Put + Flush"].append(_put(comm, raw, v.array, 0))
        times["copied"].append(_put(comm, raw, v.array, _MESSAGES))
        comm.Barrier()
        times["notify-ack"].append(_streamed(comm, v))
    raw.Unlock_all()
    raw.Free()
    v.close()
    times["notify-ack"] = comm.bcast(times["notify-ack"], 1)
    return {name: one[2:] for name, one in times.items()}


def _put(comm: MPI.Intracomm, raw: MPI.Win, array: NDArray[np.float32], copies: int) -> float:
    """Seconds of a Put and a Flush, as rank 0 sees them. `copies`: how often rank 1 copies as much, meanwhile."""
    into, end = np.empty_like(array).view(np.uint8), np.empty(1)
    comm.Barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        for count in range(_MESSAGES):
            raw.Put(array, 1, (count % 2 * array.nbytes, array.nbytes, MPI.BYTE))
            raw.Flush(1)
    seconds = (time.perf_counter() - start) / _MESSAGES
    if comm.rank == 0:
        comm.Send(end, 1)
    else:
        ended = comm.Irecv(end, 0)
        while not ended.Test():
            if copies:
                copies -= 1
                np.copyto(into, np.asarray(raw.tomemory())[: array.nbytes])
    return seconds


def _streamed(comm: MPI.Intracomm, v: malt.Vector) -> float:
    """Seconds a message, as the receiver sees them."""
    arrived: list[float] = []
    for _ in range(_MESSAGES) if comm.rank == 0 else ():
        v.scatter()
    while comm.rank == 1 and len(arrived) < _MESSAGES:
        arrived += [time.perf_counter()] * v.gather(malt.REPLACE).count
    malt.barrier()
    return (arrived[-1] - arrived[0]) / (_MESSAGES - 1) if arrived else 0.0


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
    part.__name__: part for part in (small, stream, far_held, far_small, far_model)
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
