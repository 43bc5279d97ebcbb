"""Measures a step of Adam where vectors lie, by pull and push, and through rank 0, as PS2 (SIGMOD 2019) does.

python -m bench.papers.ps2 [--quick] [--json docs/ps2.json]

malt run -n 2 -m bench.papers.ps2 STEPS ROUNDS LENGTH ... --json FILE is what some ranks do. A dot is measured on
simulated hosts alone.
"""

from __future__ import annotations

import math
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

import malt
from bench.harness import document, jobs, timing, traffic
from bench.harness.document import Measured, Table, Tables, one_of, say
from bench.harness.rest import Others

ADAM_S, DOT_S = 1e-8, 5e-10
"""What a rank of the simulation computes for an element."""
EXCHANGE = "gradients, weights"
"""What is the same in all ways."""
_STEPS = "steps"
Record = dict[str, Any]
"""Of an operation in one way: seconds, a median of those of the slowest rank; by rank, the bytes that it has sent or
read, and those that it has moved."""


class Scale(NamedTuple):
    """How much is measured."""

    lengths: tuple[int, ...]
    ranks: tuple[int, ...]
    rounds: int
    hosts: int
    """Of the simulation."""
    hosts_length: int


WHOLE, QUICK = Scale((10**5, 10**6, 10**7), (2, 4), 7, 8, 10**6), Scale((10**4, 10**5), (2, 4), 3, 4, 10**4)


class Vectors(NamedTuple):
    """What Adam works on: sharded vectors of one layout."""

    w: Any
    mean: Any
    variance: Any
    gradient: Any


Rows = Callable[[Sequence[tuple[int, int]]], tuple[int, int]]
"""The rows that this rank pulls, of the ranges of the owners, by rank."""


def _of_the_next(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return ranges[(malt.rank() + 1) % malt.size()]


def _of_all(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return (0, ranges[-1][1]) if malt.rank() == 0 else (0, 0)


ZIP, WORKERS, RANK_0 = "malt: where they are stored", "pull, update, push", "through rank 0"
WAYS: dict[str, Rows | None] = {ZIP: None, WORKERS: _of_the_next, RANK_0: _of_all}
"""Where a vector is updated. None: each rank has its part at hand."""


class Worker:
    """A rank that works on `vectors` in one of the ways. The constructor is Collective."""

    def __init__(self, way: str, vectors: Vectors) -> None:
        self._vectors, self._step = vectors, malt.optim.adam()
        own, rows = vectors.w.range, WAYS[way]
        ranges = malt.allgather([own.start, own.stop])
        self._rows = slice(*(rows(ranges) if rows else (own.start, own.stop)))
        self._is_at_hand = rows is None

    def adam(self) -> None:
        """A step of Adam. Local where the parts are at hand, else One-sided: it is made after the next malt.barrier."""
        w, *others = self._vectors
        malt.compute(ADAM_S * self._count)
        if self._is_at_hand:
            w.zip(self._step, *others)
        elif self._count:
            before = [vector.pull(self._rows) for vector in self._vectors]
            after = [part.copy() for part in before]
            self._step(*after)
            for vector, old, new in zip(self._vectors[:-1], before, after, strict=False):
                vector.push(new - old, self._rows)

    def dot(self) -> float:
        """The scalar product of w and the gradient. Collective."""
        w, gradient = self._vectors.w, self._vectors.gradient
        malt.compute(DOT_S * self._count)
        if self._is_at_hand:
            found: float = w.dot(gradient)
            return found
        parts = malt.allgather(float(np.vdot(w.pull(self._rows), gradient.pull(self._rows))))
        return float(sum(parts))

    @property
    def _count(self) -> int:
        return int(self._rows.stop - self._rows.start)


class Exchange:
    """What all ways have in common: the gradients of all ranks go to the owners, and the weights to all ranks."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors, self._gradient = vectors, np.full(vectors.w.shape, 1e-3, vectors.w.dtype)
        self._weights = np.empty_like(self._gradient)

    def once(self) -> None:
        """Push a gradient of all elements, and pull all weights. Collective."""
        self._vectors.gradient.push(self._gradient)
        malt.barrier()
        self._vectors.w.pull(out=self._weights)


def steps(lengths: Sequence[int], rounds: int, operations: Sequence[str] = ("adam",)) -> list[Record]:
    """The records of vectors of each length. The ways take turns. Collective. In a simulation seconds are virtual."""
    found = []
    for length in lengths:
        if malt.lowest():
            say(f"{malt.size()} ranks, {length:,} elements")
        with ExitStack() as opened:
            w = opened.enter_context(malt.sharded(length))
            vectors = Vectors(w, *(opened.enter_context(w.derive()) for _ in range(3)))
            found += _of(vectors, rounds, operations)
    return found


def _of(vectors: Vectors, rounds: int, operations: Sequence[str]) -> list[Record]:
    """The records of these vectors. The first run of each counts bytes, and is a warm-up."""
    vectors.w.local[:] = np.linspace(-1, 1, len(vectors.w.local))
    vectors.gradient.local[:] = 0.1
    workers = {way: Worker(way, vectors) for way in WAYS}
    works: dict[tuple[str, str], Callable[[], object]] = {
        (what, way): getattr(worker, what) for what in operations for way, worker in workers.items()
    }
    works["", EXCHANGE] = Exchange(vectors).once
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
    network = malt.Network(*jobs.GIGABIT)
    return malt.simulate(lambda _: steps([length], 1, ("adam", "dot")), ranks, network=network)[0]


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, others = options.scale, Others()
    words = "bench.papers.ps2", _STEPS, scale.rounds, *scale.lengths
    records = [one for ranks in scale.ranks for one in jobs.report(ranks, *words)]
    share = others.share()
    about = {**scale._asdict(), "adam_s": ADAM_S}
    return {"about": about, "records": records, "others": share,
            "modelled": modelled(scale.hosts, scale.hosts_length)}  # fmt: skip


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"adam": _adam(found["records"], found["about"]), "hosts": _hosts(found["modelled"])}


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say beside cells of its tables."""
    about = found["about"]
    return {
        "rounds": about["rounds"], "others": found["others"], "adam_ns": 1e9 * about["adam_s"],
        "hosts_ranks": about["hosts"], "hosts_length": power(about["hosts_length"]),
    }  # fmt: skip


def power(length: int) -> str:
    """`length` as a power of ten, where it is one."""
    exponent = round(math.log10(length))
    return f"10^{exponent}" if length == 10**exponent else f"{length:,}"


def in_all(record: Record) -> int:
    """The bytes that all ranks move, each counted once."""
    return int(sum(record["moved"])) // 2


def _adam(records: Iterable[Record], about: Measured) -> Table:
    """Milliseconds for each length, and megabytes for the largest."""
    lengths = about["lengths"][::-1]
    sizes = [f"{which}, MB, {power(lengths[0])}" for which in ("busiest rank", "in all")]
    rows = [["", *(f"ms, {power(length)} parameters" for length in lengths), *sizes]]
    for ranks in about["ranks"]:
        for way in (*WAYS, EXCHANGE):
            found = [one_of(records, way=way, ranks=ranks, length=length) for length in lengths]
            times = [f"{1e3 * one['seconds']:.2f}" for one in found]
            rows.append([f"{way}, {ranks} ranks", *times, *_moved(found[0])])
    return rows


def _hosts(records: Iterable[Record]) -> Table:
    rows = [["", "virtual ms", "busiest rank, MB", "in all, MB"]]
    for one in records:
        name = f"{one['operation']}, {one['way']}" if one["operation"] else one["way"]
        rows.append([name, f"{1e3 * one['seconds']:,.1f}", *_moved(one)])
    return rows


def _moved(record: Record) -> list[str]:
    """MB of the busiest rank, and in all."""
    return [megabytes(max(record["moved"])), megabytes(in_all(record))]


def megabytes(nbytes: int) -> str:
    """MB, as a number that says 0 only of 0 bytes."""
    return "0" if not nbytes else f"{nbytes / 1e6:,.1f}" if nbytes >= 1e5 else f"{nbytes / 1e6:.6f}"


if __name__ == "__main__":
    if sys.argv[1:2] == [_STEPS]:
        jobs.give(steps([int(length) for length in sys.argv[3:-2]], int(sys.argv[2])))
    else:
        document.measure("bench.papers.ps2", str(__doc__), measured, tables, scales=(WHOLE, QUICK))
