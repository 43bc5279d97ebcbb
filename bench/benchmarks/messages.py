"""Measures scatter, gather and exchange against raw MPI, on 2 ranks.

    malt run -n 2 -m bench.benchmarks.messages [--quick] --json FILE

It writes its rows to FILE.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numba  # so that vectors use compiled calls
import numpy as np
from mpi4py import MPI

import malt
from bench.benchmarks.rows import Row, missing, timed
from bench.harness import jobs
from bench.harness.timing import alternate, copy_rate

ROUNDS = 15


@contextlib.contextmanager
def without_numba() -> Iterator[None]:
    """Vectors that are made in the block use no compiled calls, as in a program that has not imported numba. Local."""
    del sys.modules["numba"]
    try:
        yield
    finally:
        sys.modules["numba"] = numba


def puts(comm: MPI.Intracomm, quick: bool) -> list[Row]:
    """Rows: scatter to one peer against Put and Flush of the same bytes. Collective."""
    rows = []
    for floats, calls in ((10, 2000), (1_000_000, 20), (16_000_000, 2)):
        with without_numba():
            v = malt.vector(np.ones(floats, np.float32), graph={0: [1], 1: [0]})
        compiled = malt.vector(np.ones(floats, np.float32), graph={0: [1], 1: [0]})
        raw = MPI.Win.Allocate(2 * v.array.nbytes, comm=comm)
        raw.Lock_all()
        np.asarray(raw.tomemory())[:] = 0
        place = [0]

        def put(v=v, raw=raw, place=place):
            place[0] = v.array.nbytes - place[0]  # alternates between two places, as a scatter does
            raw.Put(v.array, 1 - comm.rank, (place[0], v.array.nbytes, MPI.BYTE))
            raw.Flush(1 - comm.rank)

        work = {"plain": v.scatter, "compiled": compiled.scatter, "raw": put}
        work = work if comm.rank == 0 else dict.fromkeys(work, lambda: None)
        times = alternate(work, rounds=5 if quick else ROUNDS, calls=calls, comm=comm)
        name = f"scatter of {_size(v.array.nbytes)} to one peer"
        rows.append(timed(name, "raw Put + Flush", times["plain"], times["raw"]))
        rows.append(timed(f"{name}, with numba", "raw Put + Flush", times["compiled"], times["raw"]))
        comm.Barrier()
        raw.Unlock_all()
        raw.Free()
        v.close()
        compiled.close()
    return rows


def exchanges(comm: MPI.Intracomm, quick: bool) -> list[Row]:
    """Rows: scatter and gather(AVG) against Allreduce, and against gloo if torch is installed. Collective."""
    gloo = _gloo(comm)
    rows = []
    for floats, calls in ((1_000, 500), (100_000, 100), (1_000_000, 10), (10_000_000, 2)):
        with without_numba():
            vectors = {sync: malt.vector(floats, sync=sync) for sync in ("bsp", "asp")}
        vectors |= {f"{sync}, with numba": malt.vector(floats, sync=sync) for sync in ("bsp", "asp")}
        total = np.ones(floats, np.float32)
        work: dict[str, Callable[[], object]] = {
            "Allreduce": lambda total=total: comm.Allreduce(MPI.IN_PLACE, total),
            **{sync: lambda v=v: (v.scatter(), v.gather()) for sync, v in vectors.items()},
        }
        if gloo is not None:
            work["gloo"] = gloo(floats)
        total[:] = 0
        times = alternate(work, rounds=5 if quick else ROUNDS, calls=calls, comm=comm)
        name = f"exchange of {floats:,} floats"
        for sync in vectors:
            rows.append(timed(f"{name}, {sync}", "MPI Allreduce", times[sync], times["Allreduce"]))
            rows.append(
                missing(f"{name}, {sync}", "gloo all_reduce", "torch is not installed") if gloo is None
                else timed(f"{name}, {sync}", "gloo all_reduce", times[sync], times["gloo"])
            )  # fmt: skip
        for v in vectors.values():
            v.close()
    return rows


def _gloo(comm: MPI.Intracomm) -> Callable[[int], Callable[[], object]] | None:
    """A function that makes an all_reduce over gloo for a number of floats, or None without torch. Collective."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return None
    torch.set_num_threads(1)
    path = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with contextlib.redirect_stderr(io.StringIO()):
        dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=comm.rank, world_size=comm.size)

    def of(floats: int) -> Callable[[], object]:
        tensor = torch.zeros(floats)
        return lambda: dist.all_reduce(tensor)

    return of


def gathers(comm: MPI.Intracomm, quick: bool) -> list[Row]:
    """Rows: gather(AVG) of the messages of several senders, against the rate of memory copies. Collective.

    The senders are ranks simulated in the process of rank 0. They run the same code, without MPI.
    """
    rows = []
    if comm.rank == 0:
        rate = copy_rate(64_000_000)
        for floats in (1_000_000,) if quick else (1_000_000, 10_000_000):
            for messages in (1, 3, 7):
                rows.append(_gather(floats, messages, rate, 5 if quick else ROUNDS))
    comm.Barrier()
    return rows


def _gather(floats: int, messages: int, rate: float, rounds: int) -> Row:
    """The row of one gather under asp, the more expensive mode: it must check that each message is whole."""
    taken: list[float] = []

    def on_rank(rank: int) -> None:
        v = malt.vector(floats, graph="star")
        for _ in range(rounds + 2):
            if rank:
                v.scatter()
            malt.barrier()
            if rank == 0:
                start = time.perf_counter()
                merged = v.gather()
                taken.append(time.perf_counter() - start)
                assert merged.count == messages
            malt.barrier()

    malt.simulate(on_rank, messages + 1)
    limit = (messages + 2) * floats * 4 / rate
    name = f"gather(AVG) of {messages} x {floats:,} floats"
    ours = taken[2:]
    return timed(name, "(messages + 2) copies", ours, [limit] * len(ours), f"copies at {rate / 1e9:.1f} GB/s")


def svm_exchange(comm: MPI.Intracomm, quick: bool) -> list[Row]:
    """One row: an exchange of a model of 47,237 floats under asp. Collective."""
    w = np.zeros(47_237, np.float32)
    replica = malt.Replica(w, every=1, graph="all", sync="asp")
    w += 1  # as a training loop would: a replica that never changes is warned about
    replica.step()
    times = alternate({"malt": replica.step}, rounds=5 if quick else ROUNDS, calls=200, comm=comm)["malt"]
    replica.finish()
    return [Row("exchange of the SVM's 189 KB model, asp", "", None, statistics.median(times))]


def memory(comm: MPI.Intracomm, quick: bool) -> list[Row]:
    """One row: the memory of a vector, against in-degree x depth x slot plus one staging copy. Collective."""
    del quick
    floats, depth = 8_000_000, 2
    before = _resident()
    v = malt.vector(np.ones(floats, np.float32), depth=depth)
    own = v.array.nbytes
    for _ in range(2 * depth):
        v.scatter()
        comm.Barrier()
        v.gather()
        comm.Barrier()
    taken = _resident() - before - own
    due = (comm.size - 1) * depth * own + own
    v.close()
    name, against = "memory of a vector of 32 MB", "in-degree x depth x slot + a copy"
    return [Row(name, against, due / taken, taken / 1e6, due / 1e6, "MB")]


def _resident() -> float:
    """The bytes of this process in memory, with its share of the pages that ranks share."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith("Pss:")))


def _size(nbytes: int) -> str:
    return f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1e6:g} MB"


PARTS = (puts, exchanges, gathers, svm_exchange, memory)


def main() -> None:
    malt.init()
    jobs.give([row._asdict() for part in PARTS for row in part(MPI.COMM_WORLD, "--quick" in sys.argv)])


if __name__ == "__main__":
    main()
