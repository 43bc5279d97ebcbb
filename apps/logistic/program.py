"""A linear classifier at the minimum of its objective: L-BFGS, OWL-QN, and stochastic optimizers.

    python -m apps.logistic [TRAIN] [--test TEST] ...               alone
    malt run -n 4 -m apps.logistic [TRAIN] [--test TEST] ...        on four ranks

Every rank finds the gradient of its own rows, and ranks add up their gradients: an epoch of lbfgs and owlqn is an
iteration. With --sharded each rank has a part of the weights and of all that the optimizer keeps.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import malt
from apps import harness
from apps.harness import TRAFFIC, Array, Column, CommonShares, Measures, Need, Parser, Report, Start
from apps.linear import reading
from apps.logistic.batch import Batch
from apps.logistic.options import BATCH, add_options, settle
from apps.logistic.rows import Dealt, Rows
from apps.logistic.stochastic import learner
from malt.models import linear
from malt.models.linear import Objective

_HISTORY = 10
"""Pairs of vectors that L-BFGS keeps."""
_NBYTES = 8 * (2 * _HISTORY + 12)
"""Bytes for each weight, in vectors of all kinds."""


class Trainer(harness.Together):
    """One rank's rows, and the weights."""

    def __init__(self, problem: Problem, start: Start) -> None:
        super().__init__()
        options, state = problem.options, start.state
        self._problem, self._options, self._epoch = problem, options, start.epoch
        learns = not problem.is_batch or self._epoch < options.warm_start
        saved = state.get("w") if learns else state.get("point", state.get("w"))
        self._weights = linear.weights_of(problem.shape, saved, options.sharded, options.allreduce)
        loss = linear.SOFTMAX if options.multiclass == "softmax" else linear.LOSSES[options.loss]
        classes = problem.data.classes.columns
        self._objective = Objective(self._weights, loss, options.l2, options.l1, options.intercept, classes)
        self._dealt = Dealt(problem.data, start.shares, options.seed, options.exchange_every, options.sharded)
        self._batch = Batch(self._weights, self._objective, self._dealt, options, state.get("first_norm", 0.0))
        self._learner = learner(self._weights, self._objective, problem.data, options, state) if learns else None
        self.vectors = self._weights.traffic

    def take(self) -> None:
        self._dealt.take()

    def train(self, epoch: int, order: Any) -> int:
        assert self._learner is not None
        return self._dealt.epoch(epoch, self._learner.learn)

    def run(self, training: harness.Training) -> None:
        if self._problem.is_batch:
            training.train_by(self._minimize)
        else:
            training.train_epochs()

    def _minimize(self, ended: Callable[[int], bool]) -> None:
        def is_over() -> bool:
            self._epoch, self.loss = self._epoch + 1, self._batch.loss
            visited, self._dealt.visited = self._dealt.visited, 0
            return ended(visited)

        if not self._batch.first_norm:
            self._batch.begin()
        while self._epoch < self._options.warm_start:
            self._dealt.renew()
            self.train(self._epoch + 1, None)
            if is_over():
                return
        self._end_learning()
        self._batch.minimize(self._options.epochs - self._epoch, is_over)

    def _end_learning(self) -> None:
        """Let w be what was learned."""
        if self._learner is not None:
            self._weights.local(self._weights.w)[...] = self._weights.local(self._learner.point)
            self._learner = None
            self._batch.forget()

    def has_converged(self) -> bool:
        return self._batch.has_converged

    def model(self) -> Mapping[str, Array]:
        """The weights. Of sharded ones the hash of each part, as no rank has all."""
        return self._weights.compared(self._point)

    @property
    def _point(self) -> Any:
        """The weights that the training has come to."""
        return self._weights.w if self._learner is None else self._learner.point

    def keep(self, epoch: int) -> None:
        value = self._batch.value if self._learner is None else math.nan
        self._kept.append(self._dealt.measures(self._objective, self._point, value))

    def measures(self) -> Measures:
        return self._dealt.measures(self._objective, self._point)

    def state(self) -> Mapping[str, Any]:
        learned = self._learner.state() if self._learner else {}
        return {"w": self._weights.w, "first_norm": self._batch.first_norm, **learned}

    def finish(self) -> None:
        if not self._options.sharded:
            harness.same_start([self._point])

    def saved(self) -> Mapping[str, Any]:
        """Rows for the features, in the order of the file, and the intercept."""
        data, options, weights = self._problem.data, self._options, self._weights.whole(self._point)
        return {
            "loss": options.loss, "l1": options.l1, "l2": options.l2, "weights": weights[:-1], "intercept": weights[-1],
            "labels": data.classes.values, "zero_based": data.train.zero_based,
        }  # fmt: skip

    def warning(self, report: Report) -> str:
        batch, gain = self._batch, self._objective.of_zeros - report.final["objective"]
        if batch.reason and not batch.has_converged:
            return f"it has not converged: {batch.reason}" + ("" if gain > 0 else ": scale the features, or lower --l2")
        return "the model is worse than one of zeros: scale the features, or take a smaller --step" if gain < 0 else ""


class Problem(harness.Problem):
    """The rows, and the objective."""

    trains, deals = Trainer, CommonShares
    same = ("optimizer", "loss", "multiclass", "l1", "l2", "intercept", "sharded", "warm_start", "seed")

    def __init__(self, options: Namespace, rows: Rows) -> None:
        self.options, self.data, self.rows = options, rows, len(rows.train.y)
        shape = (rows.n_features + 1, rows.classes.columns)
        self.shape = shape if rows.classes.columns > 1 else shape[:1]
        self.is_batch = options.optimizer in BATCH

    def memory(self) -> Need:
        options, nbytes = self.options, _NBYTES * math.prod(self.shape)
        remedy = "correct the line, or take fewer ranks" if options.sharded else "correct the line, or add --sharded"
        what = reading.widest(options, self.data.train)
        return Need(nbytes // (malt.size() if options.sharded else 1), what, remedy)

    @property
    def tolerance(self) -> float:
        return float(self.options.gradient_tolerance) if self.is_batch else 0.0

    def facts(self) -> dict[str, Any]:
        return reading.facts(self.data.train, self.data.n_features)

    def compile(self) -> None:
        linear.compile_kernels()

    def introduction(self, trainer: Trainer) -> str:
        options, classes = self.options, self.data.classes.values
        note = f", {len(classes):,} classes ({options.multiclass or 'ovr'})" if len(self.shape) > 1 else ""
        warm = f" after {options.warm_start:,} epochs of sgd" if options.warm_start else ""
        size = reading.described(self.data.train, {"test": self.data.test}, note)
        return (
            f"{size}\n"
            f"{options.loss}, l1 {options.l1:g}, l2 {options.l2:g}, {'with' if options.intercept else 'no'} "
            f"intercept, {options.optimizer}{warm}, {'sharded' if options.sharded else 'replicated'} weights"
        )


class Program(harness.Program):
    """The command line."""

    measures = (Column("objective", "objective", ".6f"), Column("test_accuracy", "test accuracy", ".4f"))
    traffic = TRAFFIC[:1]

    def add_options(self, parser: Parser) -> None:
        add_options(parser)

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return reading.inputs(options)

    def load(self, options: Namespace) -> Problem:
        settle(options)
        return Problem(options, Rows(options))


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
