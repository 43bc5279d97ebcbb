"""Fair pairs of times: what is compared takes turns in one run, and medians are told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from mpi4py import MPI

Work = Callable[[], object]


def alternate(
    contenders: Mapping[str, Work], *, rounds: int, calls: int = 1, comm: MPI.Intracomm | None = None
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds a call, by contender, one figure a round. Collective where `comm` is given: all ranks do the same work.

    In every round each contender makes `calls` calls, one after the other, its first two rounds being warm-up; the
    order turns from round to round. Ranks start together, and a round takes as long as rank 0's.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds + 2):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            work = contenders[name]
            if comm is not None:
                comm.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            taken[name].append((time.perf_counter() - start) / calls)
    return {name: times[2:] for name, times in taken.items()}


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median over rounds, each a pair taken one after the other."""
    return statistics.median(other / mine for other, mine in zip(theirs, ours, strict=True))


def copy_rate(nbytes: int) -> float:
    """Bytes a second that one core copies in blocks of `nbytes`: the best of several."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    best = 0.0
    for _ in range(10):
        start = time.perf_counter()
        np.copyto(target, source)
        best = max(best, nbytes / (time.perf_counter() - start))
    return best
