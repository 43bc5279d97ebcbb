"""Trains sparse rows in apps.mlp: a network of one logistic output, whose first layer is a sparse vector.

The rows are read from svmlight files, or are clicks made of the seed.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Measures, Need, Start, memory
from apps.linear import reading
from apps.linear.roc import area
from apps.mlp import planted, problem
from malt.models import linear
from malt.models.linear import Order
from malt.models.networks import Weights, cross_entropy, exchanges_of, sparse
from malt.models.networks.sparse import SparseNetwork
from malt.models.networks.touched import DEPTH, SparseLearner, TouchedNetwork


class Rows:
    """Rows of a CSR matrix of float32, and their labels, the numbers of their classes. All is local."""

    def __init__(self, X: Any, labels: Any) -> None:
        self._X, self.labels = X, labels
        self.examples = linear.examples(X, labels)

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, rows: Any) -> Rows:
        """The rows, in that order: a copy."""
        return Rows(self._X[rows], self.labels[rows])

    def show(self, network: SparseNetwork, order: Order) -> None:
        """Let the network read the rows in `order`."""
        network.read(self.examples, np.asarray(order, np.int32))


def load(options: Namespace) -> tuple[list[malt.Dataset], int]:
    """The training rows, the test rows if there are any, and how many features a model of them has. Collective.

    Of --model features and labels mean what they meant when it was made. OSError, ValueError: a file cannot be read, or
    does not hold two classes.
    """
    if options.problem:
        return [*planted.clicks(options.seed)], planted.FEATURES
    known = malt.together(lambda: None if options.model is None else problem.data_of(options.model))
    train, test = reading.load(options, **({} if known is None else known[1]))
    if len(train.labels) < 2:
        raise ValueError(f"{options.train}: all rows have the same label: there must be two")
    sets = [data for data in (train, test) if data is not None]
    return sets, max([data.X.shape[1] for data in sets] + ([] if known is None else [known[0]]))


class Trainer(problem.Trainer):
    """One rank's rows, and its learner."""

    def __init__(self, of: Problem, start: Start) -> None:
        super().__init__(of, start)
        self._rows = of

    def order(self) -> Array:
        return linear.visiting_order(len(self._mine), self._generator)

    def tested(self, found: Weights, labels: Array) -> Measures:
        curve = area(found[:, 0], labels)
        logloss = cross_entropy(found, labels) / len(labels)
        return {"test_logloss": logloss, "test_auc": None if math.isnan(curve) else curve}

    def saved(self) -> Mapping[str, Any]:
        """The layers, and what `problem.data_of` returns of the data."""
        train = self._rows.sets[0]
        return {**super().saved(), "labels": np.array(train.labels), "zero_based": train.zero_based}


class Problem(problem.Problem):
    """The rows to train and to test on, and the number of neurons of each layer."""

    unit, network, trains = "rows", TouchedNetwork, Trainer

    def __init__(self, options: Namespace) -> None:
        self.sets, features = load(options)
        train, *test = (Rows(data.X, np.float32(data.y > 0)) for data in self.sets)
        super().__init__(options, train, test[0] if test else None, [features, *options.hidden, 1])
        longest = int(np.diff(self.sets[0].X.indptr).max())
        batches = -(-len(train) // (malt.size() * options.batch))
        most = exchanges_of(harness.sharing_of(options), batches).most * options.batch * longest
        self._capacity = 1 + int(min(most, features))
        """The most rows of weights that are touched between two exchanges."""

    def memory(self) -> Need:
        options = self.options
        message = self._capacity * (1 + options.hidden[0]) * np.dtype(np.float32).itemsize
        nbytes = (problem.COPIES + memory.snapshots(options.epochs)) * self.nbytes
        return Need(
            nbytes + memory.queues_nbytes(options, message, DEPTH),
            super().memory().what if options.problem else reading.widest(options, *self.sets),
            "correct the line, or take fewer neurons, ranks or epochs",
        )

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "non-zeros": self.sets[0].X.nnz, "labels": list(self.sets[0].labels)}

    def compile(self) -> None:
        linear.compile_kernels()
        sparse.compile_kernels()

    def learner(self, weights: Sequence[Weights], mine: Any) -> SparseLearner:
        options, network = self.options, self.network(weights, self.options.l2)
        return SparseLearner(
            network, mine, options.l2, options.batch, harness.sharing_of(options), self._capacity
        )  # fmt: skip

    def described(self) -> str:
        train, *test = self.sets
        return reading.described(train, dict(zip(["test"], test, strict=False)))
