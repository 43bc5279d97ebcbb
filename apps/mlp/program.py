"""A neural network of dense layers, by stochastic gradient descent: one vector a layer.

    python -m apps.mlp [DATA] ...               alone
    malt run -n 4 -m apps.mlp [DATA] ...        on four ranks

It tells pictures apart, or says how likely a row of svmlight text is of the second of two classes. Every rank trains on
its own rows, and averages each layer with its peers every --exchange-every batches. A layer is sent as soon as it has
taken its step, while the gradients of the layers below are still being computed. The first layer of svmlight rows sends
the weights of the features that were in a batch, and no others.
"""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import malt
from apps import harness
from apps.harness import Column, Parser
from apps.mlp import pictures
from apps.mlp.problem import Problem
from malt.models.networks import OPTIMIZERS, USUAL

_PICTURES: Final[dict[str, Any]] = {"hidden": [128], "batch": 32, "optimizer": "momentum", "epochs": 10}
_ROWS: Final[dict[str, Any]] = {"hidden": [16], "batch": 100, "optimizer": "adagrad", "epochs": 2}


class Program(harness.Program):
    """The command line."""

    measures = (
        Column("train_loss", "training loss", ".4f"), Column("test_accuracy", "test accuracy", ".4f"),
        Column("test_logloss", "test log-loss", ".5f"), Column("test_auc", "test AUC", ".5f"),
    )  # fmt: skip

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        steps = ", ".join(f"{name}: {kind.step:g}" for name, kind in OPTIMIZERS.items())
        add("train", nargs="?", metavar="DATA",
            help="a folder of idx files with the names of MNIST's, plain or .gz; or svmlight text of two classes, also "
            ".gz .bz2 .xz (default: the embedded digits)")  # fmt: skip
        add("--test", metavar="TEST", help="rows on which to measure, if DATA is svmlight text")
        add("--problem", choices=("clicks",),
            help="rows generated from the seed instead of DATA: clicks on advertisements")  # fmt: skip
        add("--hidden", type=layer_sizes, metavar="N[,N...]",
            help=f"neurons of the hidden layers (default: {_both('hidden')})")  # fmt: skip
        parser.whole("--batch", text=f"examples per step (default: {_both('batch')})")
        add("--optimizer", choices=sorted(OPTIMIZERS), help=f"default: {_both('optimizer')}, the only one for rows")
        add("--step", type=harness.number, metavar="X",
            help="initial step size, with --warm-up the largest; it decays linearly to 0 (default: "
            f"{steps})")  # fmt: skip
        rising = "fraction of training in which the step size rises linearly to --step"
        parser.real("--warm-up", 0.0, rising, harness.share_below_1)
        parser.real("--l2", 0.0, "weight of |w|^2 / 2, without biases; rows: of weights in the batch")
        add("--model", metavar="FILE", help="start from a model written by --save")
        parser.whole("--epochs", least=0, text=f"passes over the examples (default: {_both('epochs')})")
        harness.add_exchange_every(parser, USUAL, "batches")
        harness.add_graph(parser, graph="auto", sync="asp")
        parser.set_defaults(graph="auto", sync="asp")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        folder = [("FOLDER", path) for path in pictures.paths(options.train)]
        return [*folder, ("DATA", options.train), ("--test", options.test), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        is_rows = harness.of_lowest(
            bool(options.problem) or (options.train is not None and os.path.isfile(options.train))
        )
        settle(options, is_rows)
        if is_rows:
            from apps.mlp import clicks  # numba is loaded for rows alone

            return clicks.Problem(options)
        train, test = malt.together(lambda: pictures.load(options.train, options.seed))
        sizes = [train.pixels.shape[1], *options.hidden, 1 + int(max(train.labels.max(), test.labels.max()))]
        if train.share_of_zeros >= pictures.MOSTLY_ZEROS:
            from apps.mlp import strokes

            return strokes.Problem(options, train, test, sizes)
        return Problem(options, train, test, sizes)


def settle(options: Namespace, is_rows: bool) -> None:
    """Give the options their defaults. Local. ValueError: an option does not go with the data."""
    if options.problem and options.train:
        raise ValueError("--problem is generated from the seed: use it without DATA")
    if options.test and (options.problem or not is_rows):
        raise ValueError("--test is for svmlight text: other data has its own test examples")
    for name, default in (_ROWS if is_rows else _PICTURES).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    harness.settle_exchange_every(options, USUAL)
    if is_rows and options.optimizer != "adagrad":
        raise ValueError(f"--optimizer {options.optimizer} changes all weights in each step: rows need adagrad")


def _both(name: str) -> str:
    """The defaults of an option, for --help."""
    of_pictures, of_rows = (str(some[name]).strip("[]") for some in (_PICTURES, _ROWS))
    return f"{of_pictures}; rows: {of_rows}"


def layer_sizes(text: str) -> list[int]:
    """A type for argparse: integers such as "128" or "256,64"."""
    sizes = [int(size) if size.isdecimal() else 0 for size in text.split(",")]
    if not 1 <= min(sizes) <= max(sizes) <= sys.maxsize:
        raise argparse.ArgumentTypeError(f"must be integers from 1 to {sys.maxsize}, with commas between, got {text}")
    return sizes


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
