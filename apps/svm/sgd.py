"""--optimizer sgd: every rank trains on its own rows, one example at a time. Its learner says what it exchanges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Measures, Need, Report, Start, memory
from apps.svm import problem as common
from apps.svm.problem import USUAL
from malt.models import linear
from malt.models.linear import Order

_COPIES = 5
"""Models on a rank: the trained one, the mean so far, the exchanged one, one to merge, one to keep."""


class Trainer(common.Trainer, harness.Replicas):
    """One rank's rows, and its learner."""

    def __init__(self, problem: Problem, start: Start) -> None:
        harness.Replicas.__init__(self)
        common.Trainer.__init__(self, problem)
        self.tolerance = problem.tolerance
        self._generator = start.generator
        # A permutation, as a file may be sorted by label, and each rank needs both labels.
        self._dealt = np.random.default_rng(self._options.seed).permutation(problem.rows)
        self._mine = self._dealt_to_me()
        self.eta0 = float(start.state["first_step"]) if start.state else self._options.step or self._first_step()
        """The first step size."""
        options, sharing = self._options, replace(harness.sharing_of(self._options), every=1)
        # The Replica counts exchanges: when they are due --exchange-every says.
        self._learner = linear.learner(
            problem.linear, self._mine, problem.n_features, self.eta0, sharing, options.average, options.vector,
            start.state or None,
        )  # fmt: skip
        self.vectors = self._learner.vectors
        self._exchanges = malt.Exchanges(
            self._options.exchange_every, epoch=len(self._mine.labels) or None, first=USUAL, vectors=self.vectors,
            done=int(start.state.get("trained", 0)),
        )  # fmt: skip
        if start.state:
            self.keep(start.epoch)  # --tolerance compares with it

    def _dealt_to_me(self) -> linear.Examples:
        train = self._problem.train
        return linear.examples(train.X, train.y, malt.shard(self._dealt))

    def _first_step(self) -> float:
        """The first step size, which all ranks find on the same rows; that of the lowest counts. Collective."""
        ranks, train = min(malt.size(), linear.MAX_TRIAL_RANKS), self._problem.train
        sample = linear.examples(train.X, train.y, self._dealt[: ranks * linear.STEP_SAMPLE])
        found = linear.first_step(self._problem.linear, sample, self._problem.n_features, ranks)
        return float(harness.of_lowest(found))

    def take(self) -> None:
        self._mine = self._dealt_to_me()
        self._learner.take(self._mine)

    def order(self) -> Order:
        return linear.visiting_order(len(self._mine.labels), self._generator)

    def train(self, epoch: int, order: Order) -> int:
        self._learner.begin_epoch(epoch)
        for part, due in self._parts(order):
            self._learner.learn(part)
            if due:
                with self._exchanges.exchange():
                    self._learner.exchange()
        return len(order)

    def _parts(self, order: Order) -> Iterable[tuple[Order, bool]]:
        """The parts of an epoch, and whether an exchange is due after each.

        With a tolerance ranks synchronize after each epoch: all make the same number of exchanges, that of a rank with
        the most rows. Else a rank could wait in an exchange for one that already waits at the end of the epoch.
        """
        every = self._options.exchange_every
        if not self.tolerance or every == harness.AUTO:
            return self._exchanges.parts(order)
        most = -(-self._problem.rows // malt.size())
        return ((part, True) for part in np.array_split(order, -(-most // every)))

    def model(self) -> Mapping[str, Array]:
        return {"model": self._learner.model}

    def measures(self, model: Mapping[str, Array]) -> Measures:
        accuracy, objective = self.test_accuracy(model), self.objective(model)
        if not math.isfinite(objective):
            raise FloatingPointError(
                f"the objective is not finite: the step size, {self.eta0:.3g} at first, is too large"
            )
        return {"objective": objective, "test_accuracy": accuracy}

    def state(self) -> Mapping[str, Any]:
        return {"first_step": self.eta0, **self._learner.state()}

    def own(self) -> Mapping[str, Any]:
        return {"first_step": self.eta0, **self._learner.own()}

    def is_in_step(self, epoch: int) -> bool:
        options, rows = self._options, self._problem.rows
        if options.average == "none" or options.tolerance:
            return True
        counts = {rows // malt.size(), -(-rows // malt.size())}
        return harness.as_often(counts, epoch, options.exchange_every, at_ends=options.average == "gradient")

    def go_on_from(self, state: Mapping[str, Any], epochs: int) -> None:
        self.eta0 = float(state["first_step"])
        self._learner.go_on_from(state)

    def finish(self) -> None:
        self._learner.finish()

    def warning(self, report: Report) -> str:
        worse = report.final["objective"] > self.objective({"model": np.zeros_like(self.model()["model"])})
        return f"the model is worse than one of zeros: try a --step below {self.eta0:.3g}" if worse else ""


class Problem(common.Problem):
    """The problem, and how it is trained."""

    trains = Trainer
    same = ("loss", "l2", "intercept", "average", "step", "seed")

    @property
    def tolerance(self) -> float:
        return float(self.options.tolerance)

    def memory(self) -> Need:
        options = self.options
        nbytes = np.dtype(np.float32).itemsize * (self.n_features + 1)
        depth = {"depth": linear.DEPTH} if options.vector == "sparse" else {}
        queues = 0 if options.average == "none" else memory.queues_nbytes(options, nbytes, **depth)
        copies = _COPIES + memory.snapshots(options.epochs, options.tolerance)
        return self.need(copies * nbytes + queues)

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        return (
            f"{self.described()}, first step {trainer.eta0:g}, {options.average} averaging "
            f"{harness.often(options, 'examples')}, {options.vector} vectors"
        )
