"""Trains pictures in apps.mlp, with a network that classifies them. `clicks` has sparse rows in their place."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Measures, Need, Start, load_model, memory
from malt.models.networks import (
    OPTIMIZERS,
    Data,
    Kind,
    LayersLearner,
    Network,
    Weights,
    cross_entropy,
    first_weights,
    logits,
    step_at,
    too_large,
)

PROGRAM: Final = "apps.mlp"
COPIES = 5
"""Arrays of the weights' size on a rank: weights, gradients, the state of the optimizer, one to merge."""


class Trainer(harness.Replicas):
    """One rank's examples, and its learner."""

    def __init__(self, problem: Problem, start: Start) -> None:
        super().__init__()
        options = problem.options
        self._problem, self._options, self._generator = problem, options, start.generator
        self._dealt = np.random.default_rng(options.seed).permutation(problem.rows)
        self._mine = self._dealt_to_me()
        self.first_step = OPTIMIZERS[options.optimizer].step if options.step is None else options.step
        """The first step size."""
        self._learner = problem.learner(problem.weights(), self._mine)
        self.vectors = self._learner.vectors
        if start.state:
            self._learner.restore(start.state, start.epoch)

    def _dealt_to_me(self) -> Data:
        return self._problem.train.chosen(malt.shard(self._dealt))

    def take(self) -> None:
        self._mine = self._dealt_to_me()
        self._learner.take(self._mine)

    def order(self) -> Array:
        return self._generator.permutation(len(self._mine))

    def train(self, epoch: int, order: Array) -> int:
        options = self._options
        steps = partial(step_at, self.first_step, warm_up=options.warm_up)
        self._learner.train(order, options.batch, epoch - 1, options.epochs, steps)
        self.loss = self._learner.loss
        return len(order)

    def model(self) -> Mapping[str, Array]:
        return {str(place): layer for place, layer in enumerate(self._learner.current(), 1)}

    def measures(self, model: Mapping[str, Array]) -> Measures:
        """The mean cross-entropy over the training examples, and how good the model is on the test examples."""
        network, train, test = self._problem.network(list(model.values())), self._problem.train, self._problem.test
        loss = cross_entropy(logits(network, train), train.labels) / len(train)
        if not math.isfinite(loss):
            raise FloatingPointError(too_large(f"{self.first_step:.3g} at first"))
        return {"train_loss": loss, **({} if test is None else self.tested(logits(network, test), test.labels))}

    def tested(self, found: Weights, labels: Array) -> Measures:
        """Return the accuracy of logits for examples of these labels."""
        return {"test_accuracy": float((found.argmax(axis=1) == labels).mean())}

    def state(self) -> Mapping[str, Any]:
        return self._learner.state()

    def own(self) -> Mapping[str, Any]:
        return self._learner.own()

    def is_in_step(self, epoch: int) -> bool:
        rows, size, options = self._problem.rows, malt.size(), self._options
        batches = {-(-count // options.batch) for count in (rows // size, -(-rows // size))}
        return harness.as_often(batches, epoch, options.exchange_every)

    def go_on_from(self, state: Mapping[str, Any], epochs: int) -> None:
        self._learner.go_on_from(state, epochs)

    def finish(self) -> None:
        self._learner.finish()

    def saved(self) -> Mapping[str, Any]:
        """The layers, as layer_1, layer_2... The last row of each holds the biases."""
        return {f"layer_{place}": layer for place, layer in self.model().items()}


class Problem(harness.Problem):
    """The examples to train and to test on, and the number of neurons of each layer."""

    unit = "pictures"
    """The word for examples."""
    trains: type[Trainer] = Trainer
    same: Sequence[str] = ("optimizer", "step", "l2", "seed")
    network: Callable[..., Any] = Network
    optimizers: Mapping[str, Kind] = OPTIMIZERS

    def __init__(self, options: Namespace, train: Data, test: Data | None, sizes: Sequence[int]) -> None:
        self.options, self.train, self.test, self.rows, self.sizes = options, train, test, len(train), list(sizes)

    @property
    def nbytes(self) -> int:
        """The bytes of all weights."""
        return np.dtype(np.float32).itemsize * sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))

    def memory(self) -> Need:
        options, copies = self.options, COPIES + memory.snapshots(self.options.epochs)
        return Need(
            copies * self.nbytes + memory.queues_nbytes(options, self.nbytes),
            f"--hidden {','.join(map(str, options.hidden))} makes a network of {self.nbytes // 4:,} weights",
            "take fewer neurons, ranks or epochs",
        )

    def facts(self) -> dict[str, Any]:
        check = harness.fingerprint(self.train.labels)
        return {"neurons": self.sizes, self.unit: self.rows, "CRC-32 of labels": check}

    def weights(self) -> list[Weights]:
        """The weights to begin with, the same on all ranks. Collective."""
        weights = malt.together(self._first_weights)
        harness.same_start(weights)
        return weights

    def _first_weights(self) -> list[Weights]:
        if self.options.model is not None:
            return load_layers(self.options.model, self.sizes)
        return first_weights(self.sizes, np.random.default_rng(self.options.seed))

    def learner(self, weights: Sequence[Weights], mine: Any) -> LayersLearner:
        """Return the learner of this rank. Collective."""
        options, network = self.options, self.network(weights, self.options.l2)
        return LayersLearner(
            network, mine, self.optimizers, options.optimizer, options.batch, harness.sharing_of(options)
        )  # fmt: skip

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        risen = f" after a warm-up of {options.warm_up:g}" if options.warm_up else ""
        return (
            f"{self.described()}\n"
            f"{'-'.join(map(str, self.sizes))} neurons, {options.optimizer}, first step {trainer.first_step:g}{risen}, "
            f"l2 {options.l2:g}, batches of {options.batch:,}, averaging {harness.often(options, 'batches')}"
        )

    def described(self) -> str:
        """The line of the introduction about the examples."""
        return f"{self.rows:,} pictures of {self.sizes[0]:,} pixels; {len(self.test or ()):,} to test on"


def load_layers(path: str, sizes: Sequence[int]) -> list[Weights]:
    """The layers of a network of `sizes` neurons.

    ValueError: the file is not a model, or a model of another program or other sizes. The message names the file.
    OSError: it cannot be read.
    """
    found = load_model(path, PROGRAM)
    layers = [found[name] for name in (f"layer_{place}" for place in range(1, len(found) + 1)) if name in found]
    kinds = [(layer.shape, layer.dtype) for layer in layers]
    if kinds != [((n_inputs + 1, n_outputs), np.dtype(np.float32)) for n_inputs, n_outputs in pairwise(sizes)]:
        there, here = _sizes_of(layers), "-".join(map(str, sizes))
        raise ValueError(f"{path}: a network of {there} neurons, not of {here} as here")
    if not all(np.isfinite(layer).all() for layer in layers):
        raise ValueError(f"{path}: the model holds NaN or infinity")
    return [np.ascontiguousarray(layer) for layer in layers]


def data_of(path: str) -> tuple[int, dict[str, Any]]:
    """The number of features of a network of svmlight rows, and the arguments by which malt.open_svmlight reads such.

    ValueError, OSError: as `load_layers`; the network is one of pictures.
    """
    found = load_model(path, PROGRAM)
    layer, labels, zero_based = (found.get(name, np.empty(0)) for name in ("layer_1", "labels", "zero_based"))
    kinds = [(array.shape, array.dtype) for array in (labels, zero_based)]
    if layer.ndim != 2 or kinds != [((2,), np.dtype(np.float64)), ((), np.dtype(np.bool_))]:
        raise ValueError(f"{path}: a network of pictures, not of svmlight rows")
    return len(layer) - 1, {"labels": labels.tolist(), "zero_based": bool(zero_based)}


def _sizes_of(layers: Sequence[Weights]) -> str:
    """The sizes in the file, as far as the layers fit together."""
    shapes = [layer.shape for layer in layers if layer.ndim == 2]
    return "-".join([*(str(shape[0] - 1) for shape in shapes), *(str(shape[1]) for shape in shapes[-1:])])
