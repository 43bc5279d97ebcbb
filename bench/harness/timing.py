"""Times of contenders that take turns in one run, and their medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mpi4py import MPI

Work = Callable[[], object]
Name, Found = TypeVar("Name"), TypeVar("Found")


def alternate(
    contenders: Mapping[str, Work], *, rounds: int, calls: int = 1, comm: MPI.Intracomm | None = None
) -> dict[str, list[float]]:  # fmt: skip
    """The seconds per call of each contender, one number per round. Collective if `comm` is given.

    In every round each contender makes `calls` calls. Two further rounds at the start are warm-up, and dropped. With
    `comm` all ranks do the same work, and start each turn together.
    """

    def timed(work: Work) -> float:
        if comm is not None:
            comm.Barrier()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - start) / calls

    return turns({name: lambda _, work=work: timed(work) for name, work in contenders.items()}, rounds, warm_up=2)


def turns(
    contenders: Mapping[Name, Callable[[int], Found]], rounds: int, warm_up: int = 0
) -> dict[Name, list[Found]]:  # fmt: skip
    """What each contender finds: a result per round, in which all have their turn. They are called with its number.

    The order of contenders rotates from round to round. What further `warm_up` rounds at the start find is dropped.
    """
    found: dict[Name, list[Found]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(-warm_up, rounds):
        shift = (number + warm_up) % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(contenders[name](number))
    return {name: results[warm_up:] for name, results in found.items()}


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is than theirs: the median over rounds."""
    return statistics.median(other / mine for other, mine in zip(theirs, ours, strict=True))
