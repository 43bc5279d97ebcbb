"""Compares vectors through rank 0 with parts on all ranks, by SGD, L-BFGS and OWL-QN, as Spark on Angel (2017) does.

python -m bench.papers.angel [--quick] [--json docs/angel.json]

malt run -n 4 -m bench.papers.angel TRAIN [arguments of apps.logistic] --json FILE is apps.logistic, and gives what each
rank has moved and the memory that it has taken.
"""

from __future__ import annotations

import json
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import malt
from apps import harness
from apps.logistic import program
from bench.harness import document, jobs, traffic
from bench.harness.document import Measured, Table, Tables, one_of, say
from bench.harness.rest import Others
from bench.harness.timing import turns
from bench.papers.mllib import task
from malt.kernels import compile_first

RANKS, L1, L2 = 4, 1e-5, 1e-4
ABOVE = 1e-3
"""How far above the optimum a training ends, as a part of it."""
HISTORY = 10
"""Pairs of vectors that L-BFGS keeps."""
_TOLERANCE = 1e-4
"""That of the run that finds the optimum."""
_PASSES = 15
"""More passes of sgd than any needs."""
_TRAIN = "train"
_SELF, _FORGET_THE_PEAK = Path("/proc/self"), "5"
Row = dict[str, Any]
Taken = dict[str, Any]
"""Of a run: its report, and by rank the bytes that it has moved, the most memory in MB, and that before training."""


class Scale(NamedTuple):
    """How much is measured."""

    rows: int
    features: int
    rounds: int
    hosts: int
    """Of the simulation."""
    modelled_epochs: int


WHOLE, QUICK = Scale(40_000, 500_000, 3, 8, 3), Scale(20_000, 2000, 1, 3, 1)


class Optimizer(NamedTuple):
    """A way to minimize, and what its authors report of it."""

    name: str
    words: tuple[object, ...]
    l1: float
    reported: float
    """How many times as fast as Spark it is on Angel."""

    @property
    def is_batch(self) -> bool:
        """Whether it ends at the optimum."""
        return self.name != "sgd"


OPTIMIZERS = (
    Optimizer("sgd", ("--optimizer", "sgd"), 0.0, 1.9),
    Optimizer("lbfgs", ("--optimizer", "lbfgs"), 0.0, 2.0),
    Optimizer("owlqn", ("--optimizer", "owlqn", "--l1", L1), L1, 2.4),
)
PLACES: dict[str, tuple[object, ...]] = {
    "through rank 0": ("--allreduce", "star"), "apps.logistic --sharded": ("--sharded",),
}  # fmt: skip
"""Where the vectors of an optimizer lie, and the options for it."""


class Program(program.Program):
    """apps.logistic, which notes the memory that it has once the rows are there and all is compiled."""

    before_mb: float

    def load(self, options: Namespace) -> program.Problem:
        problem = super().load(options)
        compile_first(problem.compile)
        with suppress(OSError):  # where it is refused the peak is that of the whole process
            (_SELF / "clear_refs").write_text(_FORGET_THE_PEAK)
        self.before_mb = megabytes("VmRSS")
        return problem


def megabytes(name: str) -> float:
    """Memory of this process, with pages that it shares with others, as Linux counts it: VmHWM is the most."""
    lines = (_SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def run(arguments: Sequence[str]) -> Taken:
    """Run apps.logistic, and return what it has taken. Collective."""
    made = Program()
    harness.run(made, arguments)
    most, world = megabytes("VmHWM"), malt.init()
    own = dict(traffic.edges(world.sharded))
    for peer, edge in world.statistics().peers.items():
        own[peer] += edge.bytes_sent
    moved = traffic.moved(traffic.gathered(own))
    return {"moved": moved, "most_mb": malt.allgather(most), "before_mb": malt.allgather(made.before_mb)}


def give(arguments: Sequence[str]) -> None:
    """Run apps.logistic, and give what it has taken with its report. Collective."""
    taken = run(arguments)
    report = json.loads(Path(arguments[-1]).read_text(encoding="utf-8")) if malt.lowest() else None
    jobs.give({**taken, "report": report})


def simulated(ranks: int, *words: object) -> Taken:
    """What simulated ranks have taken, each on a host of its own, where computing takes no time. Local."""
    taken, report = jobs.simulated(run, ranks, words, malt.Network(*jobs.GIGABIT))
    return {**taken, "report": report}


class Comparison:
    """The rows in `file`, and the runs, each `rounds` times."""

    def __init__(self, file: Path, rounds: int) -> None:
        self._file, self._rounds = file, rounds
        self._optima: dict[float, float] = {}
        """By the weight of |w|_1."""

    def rows(self) -> Iterator[Row]:
        """What each optimizer takes in each place. Places take turns."""
        for optimizer in sorted(OPTIMIZERS, key=lambda one: one.name):  # lbfgs first: it finds the optimum of sgd
            say(f"{optimizer.name}: how far it must go")
            found = self._reference(optimizer)
            target = (1 + ABOVE) * self._optima[optimizer.l1]
            reached = jobs.first(found["epochs"], "objective", target)
            if not reached:
                raise RuntimeError(f"{optimizer.name} does not come down to {target:.6f}")
            yield from self._turns(optimizer, reached["epoch"], target)

    def _reference(self, optimizer: Optimizer) -> jobs.Report:
        """A run that goes further than to the target."""
        ends: tuple[object, ...] = ("--tolerance", _TOLERANCE) if optimizer.is_batch else ("--epochs", _PASSES)
        report: jobs.Report = self._run(optimizer, ends, ("--sharded",))["report"]
        if optimizer.is_batch:
            self._optima[optimizer.l1] = min(one["objective"] for one in report["epochs"])
        return report

    def _turns(self, optimizer: Optimizer, epochs: int, target: float) -> Iterator[Row]:
        say(f"{optimizer.name}, {epochs} epochs")
        ends = ("--epochs", epochs, *(("--tolerance", 0) if optimizer.is_batch else ()))
        contenders = {place: lambda _, own=own: self._run(optimizer, ends, own) for place, own in PLACES.items()}
        for place, runs in turns(contenders, self._rounds).items():
            seconds = [jobs.seconds_to(target, "objective", one["report"]) for one in runs]
            most = sorted(runs, key=lambda one: float(one["most_mb"][0]))[len(runs) // 2]
            yield {
                "optimizer": optimizer.name, "place": place, "epochs": epochs, "seconds": statistics.median(seconds),
                "moved": runs[0]["moved"], "memory_mb": most["most_mb"][0] - most["before_mb"][0],
            }  # fmt: skip

    def _run(self, optimizer: Optimizer, ends: tuple[object, ...], place: tuple[object, ...]) -> Taken:
        words = (self._file, "--l2", L2, *optimizer.words, *place, *ends)
        return jobs.report(RANKS, "bench.papers.angel", _TRAIN, *words)


def modelled(file: Path, ranks: int, epochs: int) -> list[Row]:
    """What so many iterations of L-BFGS move on simulated hosts, and how long that takes, in virtual seconds. Local."""
    found = []
    for place, own in PLACES.items():
        made = simulated(ranks, file, "--l2", L2, *own, "--epochs", epochs, "--tolerance", 0)
        seconds = made["report"]["epochs"][-1]["seconds"] / epochs
        found.append({"place": place, "seconds": seconds, "moved": made["moved"], "epochs": epochs})
    return found


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, file = options.scale, options.scratch / "rows.svm"
    say(f"{scale.rows:,} rows of {scale.features:,} features")
    present, others = task.write(file, scale.rows, scale.features), Others()
    found = list(Comparison(file, scale.rounds).rows())
    share = others.share()
    say(f"{scale.hosts} simulated hosts")
    about = {**scale._asdict(), "present": present}
    return {"about": about, "rows": found, "others": share,
            "modelled": modelled(file, scale.hosts, scale.modelled_epochs)}  # fmt: skip


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"runs": _runs(found["rows"]), "hosts": _hosts(found["modelled"])}


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say beside cells of its tables."""
    about = {f"about_{name}": value for name, value in found["about"].items()}
    constants = {"ranks": RANKS, "above": ABOVE, "l1": L1, "l2": L2, "history": HISTORY}
    return {**about, **constants, "others": found["others"], "reported": [one.reported for one in OPTIMIZERS]}


def _runs(rows: Iterable[Row]) -> Table:
    lines = [["", "seconds", "epochs", "busiest rank, MB", "all ranks, MB", "memory of training, rank 0, MB"]]
    for optimizer in OPTIMIZERS:
        for place in PLACES:
            one = one_of(rows, optimizer=optimizer.name, place=place)
            taken = [f"{one['seconds']:.3f}", str(one["epochs"]), *_moved(one), f"{one['memory_mb']:,.0f}"]
            lines.append([f"{place}, {optimizer.name}", *taken])
    return lines


def _hosts(rows: Iterable[Row]) -> Table:
    heads = ["", "virtual ms an iteration", "busiest rank, MB in all", "all ranks, MB"]
    return [heads, *([one["place"], f"{1e3 * one['seconds']:,.1f}", *_moved(one)] for one in rows)]


def _moved(one: Row) -> list[str]:
    """MB of the busiest rank, and of all, each byte counted once."""
    return [f"{nbytes / 1e6:,.1f}" for nbytes in (max(one["moved"]), sum(one["moved"]) / 2)]


if __name__ == "__main__":
    if sys.argv[1:2] == [_TRAIN]:
        sys.argv.pop(1)
        harness.main("bench.papers.angel", give)
    else:
        document.measure("bench.papers.angel", str(__doc__), measured, tables, scales=(WHOLE, QUICK))
