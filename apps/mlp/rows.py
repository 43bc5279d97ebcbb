"""Rows of two classes with few non-zeros, read from svmlight files, or clicks made of the seed."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

import malt
from apps.linear import reading
from apps.mlp import model_file, planted
from malt.models import linear
from malt.models.linear import Order
from malt.models.networks.sparse import SparseNetwork

PROBLEMS = {"clicks": planted.clicks}
"""The problems that are made of the seed, by the names of --problem."""


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
        return [*PROBLEMS[options.problem](options.seed)], planted.FEATURES
    known = malt.together(lambda: None if options.model is None else model_file.described(options.model))
    train, test = reading.load(options, **({} if known is None else known[1]))
    if len(train.labels) < 2:
        raise ValueError(f"{options.train}: all rows have the same label: there must be two")
    sets = [data for data in (train, test) if data is not None]
    return sets, max([data.X.shape[1] for data in sets] + ([] if known is None else [known[0]]))
