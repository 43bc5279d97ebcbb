"""Trainings through rank 0 and on parts, by each optimizer, to an objective near the optimum."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import jobs
from bench.harness.document import say
from bench.harness.timing import turns
from bench.papers.angel import training

L1, L2 = 1e-5, 1e-4
ABOVE = 1e-3
"""How far above the optimum a training ends, as a part of it."""
HISTORY = 10
"""Pairs of vectors that L-BFGS keeps."""
_TOLERANCE = 1e-4
"""That of the run that finds the optimum."""
_PASSES = 15
"""More passes of sgd than any needs."""
Row = dict[str, Any]


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


class Place(NamedTuple):
    """Where the vectors of an optimizer lie."""

    name: str
    words: tuple[object, ...]


OPTIMIZERS = (
    Optimizer("sgd", ("--optimizer", "sgd"), 0.0, 1.9),
    Optimizer("lbfgs", ("--optimizer", "lbfgs"), 0.0, 2.0),
    Optimizer("owlqn", ("--optimizer", "owlqn", "--l1", L1), L1, 2.4),
)
RANK_0, PARTS = Place("through rank 0", ("--allreduce", "star")), Place("apps.logistic --sharded", ("--sharded",))
PLACES = (RANK_0, PARTS)


class Comparison:
    """The rows in `file`, and the runs on some `ranks`, each `rounds` times."""

    def __init__(self, file: Path, ranks: tuple[int, ...], rounds: int) -> None:
        self._file, self._ranks, self._rounds = file, ranks, rounds
        self._optima: dict[float, float] = {}
        """By the weight of |w|_1."""

    def rows(self) -> Iterator[Row]:
        """What each optimizer takes in each place, on some ranks. Places take turns."""
        for optimizer in sorted(OPTIMIZERS, key=lambda one: one.name):  # lbfgs first: it finds the optimum of sgd
            found: jobs.Report = {}
            for ranks in self._ranks:
                say(f"{optimizer.name}, {ranks} ranks: how far it must go")
                found = self._reference(optimizer, ranks) if not found or not optimizer.is_batch else found
                target = (1 + ABOVE) * self._optima[optimizer.l1]
                reached = jobs.first(found["epochs"], "objective", target)
                if not reached:
                    raise RuntimeError(f"{optimizer.name} on {ranks} ranks does not come down to {target:.6f}")
                yield from self._turns(optimizer, ranks, reached["epoch"], target)

    def _reference(self, optimizer: Optimizer, ranks: int) -> jobs.Report:
        """A run that goes further than to the target."""
        ends: tuple[object, ...] = ("--tolerance", _TOLERANCE) if optimizer.is_batch else ("--epochs", _PASSES)
        report: jobs.Report = self._run(optimizer, ranks, ends, PARTS)["report"]
        if optimizer.is_batch:
            self._optima[optimizer.l1] = min(one["objective"] for one in report["epochs"])
        return report

    def _turns(self, optimizer: Optimizer, ranks: int, epochs: int, target: float) -> Iterator[Row]:
        say(f"{optimizer.name}, {ranks} ranks, {epochs} epochs")
        ends = ("--epochs", epochs, *(("--tolerance", 0) if optimizer.is_batch else ()))
        run = partial(self._run, optimizer, ranks, ends)
        for place, runs in turns({place: lambda _, place=place: run(place) for place in PLACES}, self._rounds).items():
            seconds = [jobs.seconds_to(target, "objective", one["report"]) for one in runs]
            most = sorted(runs, key=lambda one: float(one["most_mb"][0]))[len(runs) // 2]
            yield {
                "optimizer": optimizer.name, "place": place.name, "ranks": ranks, "epochs": epochs,
                "seconds": statistics.median(seconds), "moved": runs[0]["moved"], "most_mb": most["most_mb"][0],
                "before_mb": most["before_mb"][0],
            }  # fmt: skip

    def _run(self, optimizer: Optimizer, ranks: int, ends: tuple[object, ...], place: Place) -> training.Taken:
        words = (self._file, "--l2", L2, *optimizer.words, *place.words, *ends)
        return jobs.report(ranks, "bench.papers.angel.training", *words)


def modelled(file: Path, ranks: int, epochs: int) -> list[Row]:
    """What so many iterations of L-BFGS move on simulated hosts, and how long that takes, in virtual seconds. Local."""
    found = []
    for place in PLACES:
        words = (file, "--l2", L2, *place.words, "--epochs", epochs, "--tolerance", 0)
        made = training.simulated(ranks, *words)
        seconds = made["report"]["epochs"][-1]["seconds"] / epochs
        found.append({"place": place.name, "seconds": seconds, "moved": made["moved"], "epochs": epochs})
    return found
