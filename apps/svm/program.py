"""A linear classifier by stochastic gradient descent: support vector machines, logistic regression.

    python -m apps.svm [TRAIN] [--test TEST] ...               alone
    malt run -n 4 -m apps.svm [TRAIN] [--test TEST] ...        on four ranks

Every rank trains on its own rows, one example at a time. It exchanges its model with its peers every --exchange-every
examples.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import malt
from apps import harness, linear
from apps.harness import Array, Column, Measures, Need, Parser, Report, Start, exchanges, memory
from apps.linear import Order
from apps.linear.reading import load, paths
from apps.svm.learners import DEPTH, learner
from malt import files

SUMMARY = str(__doc__).splitlines()[0]
AVERAGES = ("model", "delta", "gradient", "none")
_COPIES = 5
"""Models on a rank: the trained one, the mean so far, the exchanged one, one to merge, one to keep."""


class Problem(harness.Problem):
    """The training rows, the test rows, and the objective."""

    def __init__(self, options: Namespace, train: malt.Dataset, test: malt.Dataset | None) -> None:
        self.options, self.train, self.test = options, train, test
        self.rows = len(train.y)
        self.n_features = max(train.X.shape[1], 0 if test is None else test.X.shape[1])
        self.linear = linear.Problem(options.loss, options.l2, options.intercept)

    def memory(self) -> Need:
        """The need names the line with the largest index: one stray index makes a wide model."""
        options, path, widest = self.options, paths(self.options)[0], self.train
        if self.test is not None and self.test.X.shape[1] > widest.X.shape[1]:
            path, widest = str(paths(options)[1]), self.test
        width = widest.X.shape[1]
        nbytes = np.dtype(np.float32).itemsize * (width + 1)
        depth = {"depth": DEPTH} if options.vector == "sparse" else {}
        queues = 0 if options.average == "none" else memory.queues_nbytes(options.graph, nbytes, **depth)
        copies = _COPIES + memory.snapshots(options.epochs, options.tolerance)
        what = f"{path}:{widest.largest_line}: feature {width - widest.zero_based:,} makes a wide model"
        return Need(copies * nbytes + queues, what, "correct the line, or take fewer ranks or epochs")

    def match(self) -> dict[str, Any]:
        train = self.train
        same = {name: getattr(self.options, name) for name in ("loss", "l2", "intercept", "average", "step", "seed")}
        data = {"rows": self.rows, "non-zeros": train.X.nnz, "features": self.n_features}
        return {**same, **data, "labels": list(train.labels), "CRC-32 of labels": harness.fingerprint(train.y)}

    def compile(self) -> None:
        linear.compile_kernels()

    def trainer(self, start: Start) -> Trainer:
        return Trainer(self, start)

    def introduction(self, trainer: Trainer) -> str:
        options, train, test = self.options, self.train, self.test
        return (
            f"{self.rows:,} rows, {train.X.shape[1]:,} features, {train.X.nnz:,} non-zeros"
            + (f"; {len(test.y):,} test rows\n" if test else "\n")
            + f"{options.loss}, l2 {options.l2:g}, {'with' if options.intercept else 'no'} intercept, "
            f"first step {trainer.eta0:g}, {options.average} averaging every {options.exchange_every:,} examples, "
            f"{options.vector} vectors"
        )


class Trainer(harness.Trainer):
    """One rank's rows, and its learner."""

    def __init__(self, problem: Problem, start: Start) -> None:
        self._problem, self._options, self._generator = problem, problem.options, start.generator
        train, test = problem.train, problem.test
        self._everything = linear.examples(train.X, train.y)
        self._test = None if test is None else linear.examples(test.X, test.y)
        # A permutation, as a file may be sorted by label, and each rank needs both labels.
        self._dealt = np.random.default_rng(self._options.seed).permutation(problem.rows)
        self._mine = self._dealt_to_me()
        self.eta0 = float(start.state["first_step"]) if start.state else self._options.step or self._first_step()
        """The first step size."""
        self._learner = learner(
            problem.linear, self._mine, problem.n_features, self.eta0, self._options, start.state or None
        )  # fmt: skip
        self.vectors = self._learner.vectors
        self._trained = int(start.state.get("trained", 0))

    def _dealt_to_me(self) -> linear.Examples:
        train = self._problem.train
        return linear.examples(train.X, train.y, malt.shard(self._dealt))

    def _first_step(self) -> float:
        """The first step size, the same on all ranks. Each rank tries some candidates on the same rows. Collective."""
        ranks, train = min(malt.size(), linear.MAX_TRIAL_RANKS), self._problem.train
        sample = linear.examples(train.X, train.y, self._dealt[: ranks * linear.STEP_SAMPLE])
        mine = slice(malt.rank(), None, malt.size())
        return linear.first_step(
            self._problem.linear, sample, self._problem.n_features, ranks, mine, harness.by_rank
        )  # fmt: skip

    def take(self) -> None:
        self._mine = self._dealt_to_me()
        self._learner.take(self._mine)

    def order(self) -> Order:
        return linear.visiting_order(len(self._mine.labels), self._generator)

    def begin_epoch(self, place: int) -> None:
        self._learner.begin_epoch(place)

    def train(self, epoch: int, order: Order) -> int:
        every = self._options.exchange_every
        if self._options.tolerance:  # ranks synchronize after each epoch
            parts = exchanges.as_many(order, every, -(-self._problem.rows // malt.size()))
        else:
            parts = exchanges.every(order, every, self._trained)
        for part, due in parts:
            self._learner.learn(part, due)
        self._trained += len(order)
        return len(order)

    def model(self) -> Mapping[str, Array]:
        return {"model": self._learner.model}

    def objective(self, model: Mapping[str, Array]) -> float:
        return linear.objective(self._problem.linear, self._everything, model["model"])

    def measures(self, model: Mapping[str, Array]) -> Measures:
        accuracy = None if self._test is None else linear.accuracy(self._problem.linear, self._test, model["model"])
        objective = self.objective(model)
        if not math.isfinite(objective):
            raise FloatingPointError(
                f"the objective is not finite: the step size, {self.eta0:.3g} at first, is too large"
            )
        return {"objective": objective, "test_accuracy": accuracy}

    def state(self) -> Mapping[str, Any]:
        return {"first_step": self.eta0, **self._learner.state()}

    def finish(self) -> None:
        self._learner.finish()

    def save(self, path: str) -> None:
        """Write the model as .npz: weights of the features, in the order of the file, and the intercept."""
        train, model = self._problem.train, self._learner.model
        files.save_npz(
            path, format=1, program="apps.svm", loss=self._options.loss, l2=self._options.l2, weights=model[:-1],
            intercept=model[-1], labels=np.array(train.labels), zero_based=train.zero_based,
        )  # fmt: skip

    def warning(self, report: Report) -> str:
        zeros = {"model": np.zeros_like(self._learner.model)}
        is_worse = report.final["objective"] > self.objective(zeros)
        return f"the model is worse than one of zeros: try a --step below {self.eta0:.3g}" if is_worse else ""


class Program(harness.Program):
    """The command line."""

    name, summary = "apps.svm", SUMMARY
    measures = (Column("objective", "objective", ".4f"), Column("test_accuracy", "test accuracy", ".4f"))

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("train", nargs="?", metavar="TRAIN", help="svmlight text, also .gz .bz2 .xz (the embedded census data a9a)")
        add("--test", metavar="TEST", help="rows to measure the accuracy on")
        add("--loss", choices=sorted(linear.LOSSES), default="hinge", help="(%(default)s)")
        add("--l2", type=harness.real_number(0), default=1e-4, metavar="X", help="weight of |w|^2 / 2 (%(default)s)")
        add("--average", choices=AVERAGES, default="model", help="what ranks exchange (%(default)s)")
        add("--vector", choices=("dense", "sparse"), default="dense",
            help="send all weights, or those of features that were in the rows (%(default)s)")  # fmt: skip
        add("--step", type=harness.positive_number, metavar="X", help="the first step size (chosen on a sample)")
        add("--no-intercept", dest="intercept", action="store_false", help="a plane through the origin")
        harness.add_tolerance(parser)
        harness.add_common_options(parser, epochs=10, exchange_every=1000, graph="all", sync="asp")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return list(zip(("TRAIN", "--test"), paths(options), strict=True))

    def load(self, options: Namespace) -> Problem:
        return Problem(options, *load(options))


def run(arguments: Sequence[str]) -> None:
    """Run the program on every rank. Collective. BadInput, FloatingPointError: as in `harness.run`."""
    harness.run(Program(), arguments)
