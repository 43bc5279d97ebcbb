"""Gradient-boosted trees on histograms, for two classes or for numbers.

    python -m apps.gbdt [TRAIN] [--test TEST] ...               alone
    malt run -n 4 -m apps.gbdt [TRAIN] [--test TEST] ...        on four ranks

Every rank makes histograms of its own rows. Ranks add them up, and split at the best of all features. Gradients are
summed in fixed point: the trees are the same on any number of ranks. An epoch is a tree.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.gbdt.options import add_options, inputs, load
from apps.harness import TRAFFIC, Array, Column, CommonShares, Measures, Need, Parser, Start
from apps.linear import reading
from apps.linear.roc import area
from malt.data import rows_of
from malt.models import Counted, gathered, trees
from malt.models.trees import Growth, Rounds, Scored, Trees


class Trainer(harness.Together):
    """One rank's rows, and the trees."""

    def __init__(self, problem: Problem, start: Start) -> None:
        super().__init__()
        self._problem, self._options, self._shares = problem, problem.options, start.shares
        options, train = problem.options, problem.data["train"]
        growth = Growth(options.loss, options.depth, options.learning_rate, options.l2, options.min_rows)
        binning = trees.bins_of(train.X, options.bins, options.missing, options.seed)
        share = float(np.mean(train.y > 0))
        baseline = math.log(share / (1 - share)) if options.loss == "logistic" else float(np.mean(train.y, dtype=float))
        self._trees = Trees(baseline, start.state)
        self._validated = [float(loss) for loss in start.state.get("validated", ())]
        """The loss on the rows of --valid after each tree."""
        self._sets = {
            name: Scored(data.X, data.y[np.newaxis], partial(self._mine, len(data.y)), binning, [self._trees])
            for name, data in problem.data.items()
        }
        self._whole: Mapping[str, Any] = {}
        """All trees, where `finish` has left those up to the best."""
        self.vectors = [Counted(malt.init().statistics)]
        self._rounds = Rounds(growth, [self._trees], self._sets["train"], self._deal)

    def _mine(self, count: int) -> Any:
        """The rows that this rank has, of so many."""
        return rows_of(count, malt.rank(), self._shares.failed)

    def _deal(self) -> int:
        self._shares.changed(self._shares.present())
        for one in self._sets.values():
            one.take()
        return len(self._problem.data["train"].y)

    def take(self) -> None:
        self._rounds.take()

    def train(self, epoch: int, order: Any) -> int:
        self._rounds.grow()
        for name, one in self._sets.items():
            if name != "train":
                one.add_last()
        if "valid" in self._sets:
            self._validated.append(self._loss("valid"))
            self.loss = self._validated[-1]
        return len(self._sets["train"].y[0])

    def _loss(self, name: str) -> float:
        """The loss on the rows of a file, a root of it for --loss squared. Collective."""
        while (loss := self._sets[name].loss(self._options.loss)) is None:
            self.take()
        return math.sqrt(loss) if self._options.loss == "squared" else loss

    def has_converged(self) -> bool:
        return bool(self._validated) and len(self._validated) - self._best >= self._options.patience

    @property
    def _best(self) -> int:
        """The number of trees with the least loss on the rows of --valid."""
        return int(np.argmin(self._validated)) + 1

    def model(self) -> Mapping[str, Array]:
        return self._trees.state()

    def state(self) -> Mapping[str, Any]:
        return {**(self._whole or self._trees.state()), "validated": np.array(self._validated)}

    def measures_of_all(self) -> list[Measures]:
        measures = super().measures_of_all()
        if self._options.loss == "logistic" and "test" in self._sets:
            while (found := area_of_all(self._sets["test"])) is None:
                self.take()
            measures[-1]["test_auc"] = found
        return measures

    def measures(self) -> Measures:
        test = "test_logloss" if self._options.loss == "logistic" else "test_rmse"
        keys = {"train": "train_loss", "valid": "valid_loss", "test": test}
        return {keys[name]: self._loss(name) for name in self._sets}

    def finish(self) -> None:
        """Keep the trees up to the best for the rows of --valid, if there are any."""
        if self._validated:
            self._whole = self._trees.state()
            self._trees.cut(self._best)
            for one in self._sets.values():
                one.score_again()

    def saved(self) -> Mapping[str, Any]:
        """The trees, without the numbers of bins: docs/gbdt.md has a program that reads them."""
        arrays = {name: array for name, array in self._trees.state().items() if name != "bin"}
        options, zero_based = self._options, self._problem.data["train"].zero_based
        more = {"loss": options.loss, "missing": options.missing, "zero_based": zero_based}
        return {**arrays, "baseline": self._trees.baseline, **more}


class Problem(harness.Problem):
    """The rows to train, to validate and to test on."""

    trains, deals = Trainer, CommonShares
    same = ("loss", "depth", "bins", "learning_rate", "min_rows", "l2", "missing", "patience", "seed")

    def __init__(self, options: Namespace, data: Mapping[str, malt.Dataset]) -> None:
        self.options, self.data, self.rows = options, data, len(data["train"].y)

    def memory(self) -> Need:
        options, rows = self.options, -(-self.rows // malt.size())
        features = max(self.data["train"].X.shape[1], 1)
        nbytes = features * (3 * rows + 3 * 16 * (options.bins + 1) * 2**options.depth) + 40 * rows
        path, line = reading.paths(options)[0], self.data["train"].largest_line
        return Need(nbytes, f"{path}:{line}: {features:,} features of {self.rows:,} rows, as bins and histograms",
                    "take fewer --bins, a smaller --depth, or features that matter")  # fmt: skip

    def facts(self) -> dict[str, Any]:
        train = self.data["train"]
        return reading.facts(train, train.X.shape[1])

    def compile(self) -> None:
        trees.compile_kernels()

    def introduction(self, trainer: Trainer) -> str:
        options, size = self.options, reading.described(self.data["train"], self.data)
        return (
            f"{size}\n{options.loss}, trees of depth "
            f"{options.depth}, {options.bins} bins, learning rate {options.learning_rate:g}"
        )


def area_of_all(some: Scored) -> float | None:
    """The area under the ROC curve of the rows of all ranks; None: a rank has failed with its rows. Collective."""
    parts = (gathered(np.asarray(array[0], np.float64)) for array in (some.scores, some.y))
    scores, y = (np.concatenate([*one.values()]) for one in parts)
    return area(scores, y) if len(scores) == len(y) == some.count else None


class Program(harness.Program):
    """The command line."""

    measures = (
        Column("train_loss", "training loss", ".5f"), Column("valid_loss", "valid. loss", ".5f"),
        Column("test_logloss", "test log-loss", ".5f"), Column("test_auc", "test AUC", ".5f"),
        Column("test_rmse", "test RMSE", ".5f"),
    )  # fmt: skip
    traffic = TRAFFIC[:1]

    def add_options(self, parser: Parser) -> None:
        add_options(parser)

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return inputs(options)

    def load(self, options: Namespace) -> Problem:
        return Problem(options, load(options))


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
