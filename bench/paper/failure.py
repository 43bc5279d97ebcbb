"""A linear SVM on ranks of which one is killed in the midst of an epoch.

    malt run -n 4 --survive -m bench.paper.failure FOLDER [--killed-in EPOCH] [options of apps.svm]

FOLDER: rows that `bench.svm.planted.write` has written. Ranks are paced: four of them on fewer cores are as fast as on
cores of their own. The last rank kills itself half-way through its rows of that epoch.
"""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from pathlib import Path
from typing import Any

import malt
from apps import harness
from apps.harness import Array, Parser, Start, exchanges
from apps.svm import optimizers, sgd
from bench import jobs
from bench.paper import workloads
from bench.svm import planted
from bench.svm.straggler import Paced

RANKS, PLACES = 4, 200
PACE_S = 100e-6
"""Seconds that a rank takes for a row."""
EVERY = 500
KILLED_IN, EPOCHS = 6, 24


class Trainer(sgd.Trainer):
    """One rank's rows, in which it may be killed."""

    def __init__(self, problem: sgd.Problem, start: Start) -> None:
        super().__init__(problem, start)
        self._pace = Paced(PACE_S)

    def train(self, epoch: int, order: Array) -> int:
        is_struck = epoch == self._options.killed_in and malt.rank() == malt.size() - 1
        parts = list(exchanges.every(order, self._options.exchange_every, self._trained))
        for number, (part, due) in enumerate(parts):
            if is_struck and number >= len(parts) / 2:
                os.kill(os.getpid(), signal.SIGKILL)
            self._pace.begin()
            self._learner.learn(part, due)
            self._pace.end(len(part))
        self._trained += len(order)
        return len(order)


class Problem(sgd.Problem):
    """The rows, and how they are trained."""

    def trainer(self, start: Start) -> Trainer:
        return Trainer(self, start)


class Program(planted.Program):
    """apps.svm on a folder of rows, with a rank that is killed."""

    def add_options(self, parser: Parser) -> None:
        super().add_options(parser)
        parser.add_argument("--killed-in", type=harness.whole_number(1), metavar="EPOCH")

    def load(self, options: Namespace) -> Problem:
        optimizers.settle(options)
        return Problem(options, *self.read(options))


def curves(rows: int, folder: Path) -> dict[str, Any]:
    """Seconds and objective of each epoch without a failure, and of one with; what the report says of the failure."""
    own = folder / "failure"
    own.mkdir()
    planted.write(workloads.strings(rows, PLACES), own)
    words = (own, "--no-intercept", "--sync", "bsp", "--exchange-every", EVERY, "--epochs", EPOCHS)
    runs = [jobs.report(RANKS, "bench.paper.failure", *words, *more, options=["--survive"])
            for more in ((), ("--killed-in", KILLED_IN))]  # fmt: skip
    without, killed = ([[epoch["seconds"], epoch["objective"]] for epoch in made["epochs"]] for made in runs)
    [lost] = runs[1]["lost_ranks"]
    return {"without": without, "killed": killed, "lost": lost, "rows": rows}


if __name__ == "__main__":
    harness.main("bench.paper.failure", lambda arguments: harness.run(Program(), arguments))
