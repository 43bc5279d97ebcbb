"""Measures scatters and exchanges against raw MPI, on 2 ranks.

    malt run -n 2 -m bench.benchmarks.messages [--quick] --json FILE

It writes its rows to FILE.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator

import numba  # so that vectors use compiled calls
import numpy as np
from mpi4py import MPI

import malt
from bench.benchmarks.rows import Row, missing, timed
from bench.harness import jobs
from bench.harness.timing import alternate

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


def _size(nbytes: int) -> str:
    return f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1e6:g} MB"


def main() -> None:
    malt.init()
    jobs.give([row._asdict() for part in (puts, exchanges) for row in part(MPI.COMM_WORLD, "--quick" in sys.argv)])


if __name__ == "__main__":
    main()
