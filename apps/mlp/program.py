"""A neural network of dense layers that tells pictures apart, by stochastic gradient descent: one vector a layer.

    python -m apps.mlp [FOLDER] ...               alone
    malt run -n 4 -m apps.mlp [FOLDER] ...        on four ranks

Every rank trains on its own rows, and averages each layer with its peers every --exchange-every batches. A layer is
sent as soon as it has taken its step, while the gradients of the layers below are still being computed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Column, Measures, Need, Parser, Start, memory
from apps.mlp import modelfile, pictures
from apps.mlp.learner import Learner, evaluate, too_large
from apps.mlp.network import Weights, first_weights
from apps.mlp.optimizer import OPTIMIZERS, step_at
from apps.mlp.pictures import Pictures

SUMMARY = str(__doc__).splitlines()[0]
_COPIES = 5
"""Arrays of the weights' size on a rank: weights, gradients, the state of the optimizer, one to merge."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A context without NumPy's warnings of overflow. A loss that is not finite is raised as an error instead."""
    with np.errstate(over="ignore", invalid="ignore"):
        yield


class Problem(harness.Problem):
    """The training pictures, the test pictures, and the size of the network."""

    def __init__(self, options: Namespace, train: Pictures, test: Pictures) -> None:
        self.options, self.train, self.test, self.rows = options, train, test, len(train)
        classes = 1 + int(max(train.labels.max(), test.labels.max()))
        self.sizes = [train.pixels.shape[1], *options.hidden, classes]
        """The number of neurons of each layer."""

    def memory(self) -> Need:
        options = self.options
        weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))
        nbytes = np.dtype(np.float32).itemsize * weights
        return Need(
            (_COPIES + memory.snapshots(options.epochs)) * nbytes + memory.queues_nbytes(options.graph, nbytes),
            f"--hidden {','.join(map(str, options.hidden))} makes a network of {weights:,} weights",
            "take fewer neurons, ranks or epochs",
        )

    def match(self) -> dict[str, Any]:
        same = {name: getattr(self.options, name) for name in ("optimizer", "step", "l2", "seed")}
        check = harness.fingerprint(self.train.labels)
        return {"neurons": self.sizes, **same, "pictures": self.rows, "CRC-32 of labels": check}

    def trainer(self, start: Start) -> Trainer:
        weights = malt.together(self._first_weights)
        harness.same_start(weights)
        return Trainer(self, start, weights)

    def _first_weights(self) -> list[Weights]:
        if self.options.model is not None:
            return modelfile.load(self.options.model, self.sizes)
        return first_weights(self.sizes, np.random.default_rng(self.options.seed))

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        return (
            f"{self.rows:,} pictures of {self.sizes[0]:,} pixels; {len(self.test):,} to test on\n"
            f"{'-'.join(map(str, self.sizes))} neurons, {options.optimizer}, first step {trainer.first_step:g}, "
            f"l2 {options.l2:g}, batches of {options.batch:,}, averaging every {options.exchange_every:,} batches"
        )


class Trainer(harness.Trainer):
    """One rank's pictures, and its learner."""

    def __init__(self, problem: Problem, start: Start, weights: Sequence[Weights]) -> None:
        options = problem.options
        self._problem, self._options, self._generator = problem, options, start.generator
        self._dealt = np.random.default_rng(options.seed).permutation(problem.rows)
        self._mine = self._dealt_to_me()
        self.first_step = OPTIMIZERS[options.optimizer].step if options.step is None else options.step
        """The first step size."""
        self._learner = Learner(weights, self._mine, options)
        self.vectors = self._learner.vectors
        if start.state:
            self._learner.restore(start.state, start.epoch)

    def _dealt_to_me(self) -> Pictures:
        return self._problem.train.chosen(malt.shard(self._dealt))

    def take(self) -> None:
        self._mine = self._dealt_to_me()
        self._learner.take(self._mine)

    def order(self) -> Array:
        return self._generator.permutation(len(self._mine))

    @_quiet()
    def train(self, epoch: int, order: Array) -> int:
        for start in range(0, len(order), self._options.batch):
            done = (epoch - 1) * len(order) + start
            step = step_at(self.first_step, done / (len(order) * self._options.epochs))
            self._learner.learn(order[start : start + self._options.batch], step)
        return len(order)

    def model(self) -> Mapping[str, Array]:
        return {str(place): layer for place, layer in enumerate(self._learner.weights, 1)}

    @_quiet()
    def measures(self, model: Mapping[str, Array]) -> Measures:
        """The mean cross-entropy over the training pictures, and the accuracy on the test pictures."""
        weights = list(model.values())
        loss, _ = evaluate(weights, self._problem.train)
        _, accuracy = evaluate(weights, self._problem.test)
        if not math.isfinite(loss):
            raise FloatingPointError(too_large(f"{self.first_step:.3g} at first"))
        return {"train_loss": loss, "test_accuracy": accuracy}

    def state(self) -> Mapping[str, Any]:
        return self._learner.state()

    @_quiet()
    def finish(self) -> None:
        self._learner.finish()

    def save(self, path: str) -> None:
        modelfile.save(path, self._learner.weights)


class Program(harness.Program):
    """The command line."""

    name, summary = "apps.mlp", SUMMARY
    measures = (Column("train_loss", "training loss", ".4f"), Column("test_accuracy", "test accuracy", ".4f"))

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        steps = ", ".join(f"{name}: {kind.step:g}" for name, kind in OPTIMIZERS.items())
        add("data", nargs="?", metavar="FOLDER",
            help="with idx files named as those of MNIST, plain or .gz (the digits of scikit-learn)")  # fmt: skip
        add("--hidden", type=layer_sizes, default=[128], metavar="N[,N...]", help="neurons of the hidden layers (128)")
        add("--batch", type=harness.whole_number(1), default=32, metavar="N", help="examples of one step (%(default)s)")
        add("--optimizer", choices=sorted(OPTIMIZERS), default="momentum", help="(%(default)s)")
        add("--step", type=harness.real_number(0), metavar="X",
            help=f"the first step size; it falls to 0 in a line ({steps})")  # fmt: skip
        add("--l2", type=harness.real_number(0), default=0.0, metavar="X",
            help="weight of |w|^2 / 2, without biases (%(default)g)")  # fmt: skip
        add("--model", metavar="FILE", help="start from a model that --save wrote")
        harness.add_common_options(
            parser, epochs=10, exchange_every=10, graph="auto", sync="asp", unit="batches"
        )  # fmt: skip

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [*(("FOLDER", path) for path in pictures.paths(options.data)), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        return Problem(options, *malt.together(lambda: pictures.load(options.data, options.seed)))


def layer_sizes(text: str) -> list[int]:
    """A type for argparse: whole numbers such as "128" or "256,64"."""
    sizes = [int(size) if size.isdecimal() else 0 for size in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 up, with commas between them, got {text}")
    return sizes


def run(arguments: Sequence[str]) -> None:
    """Run the program on every rank. Collective. BadInput, FloatingPointError: as in `harness.run`."""
    harness.run(Program(), arguments)
