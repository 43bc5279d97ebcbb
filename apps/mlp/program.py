"""A neural network of dense layers, by stochastic gradient descent: one vector a layer.

    python -m apps.mlp [DATA] ...               alone
    malt run -n 4 -m apps.mlp [DATA] ...        on four ranks

It tells pictures apart, or says how likely a row of svmlight text is of the second of two classes. Every rank trains on
its own rows, and averages each layer with its peers every --exchange-every batches. A layer is sent as soon as it has
taken its step, while the gradients of the layers below are still being computed. The first layer of svmlight rows sends
the weights of the features that were in a batch, and no others.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

import malt
from apps import harness
from apps.harness import Column, Parser
from apps.mlp import options as words
from apps.mlp import pictures
from apps.mlp.problem import Problem


class Program(harness.Program):
    """The command line."""

    measures = (
        Column("train_loss", "training loss", ".4f"), Column("test_accuracy", "test accuracy", ".4f"),
        Column("test_logloss", "test log-loss", ".5f"), Column("test_auc", "test AUC", ".5f"),
    )  # fmt: skip

    def add_options(self, parser: Parser) -> None:
        words.add_options(parser)

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        folder = [("FOLDER", path) for path in pictures.paths(options.train)]
        return [*folder, ("DATA", options.train), ("--test", options.test), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        is_rows = harness.of_lowest(
            bool(options.problem) or (options.train is not None and os.path.isfile(options.train))
        )
        words.settle(options, is_rows)
        if is_rows:
            from apps.mlp import clicks  # numba is loaded for rows alone

            return clicks.Problem(options)
        train, test = malt.together(lambda: pictures.load(options.train, options.seed))
        sizes = [train.pixels.shape[1], *options.hidden, 1 + int(max(train.labels.max(), test.labels.max()))]
        if train.share_of_zeros >= pictures.MOSTLY_ZEROS:
            from apps.mlp import strokes

            return strokes.Problem(options, train, test, sizes)
        return Problem(options, train, test, sizes)


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
