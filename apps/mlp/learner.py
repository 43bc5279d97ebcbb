"""One rank's replica of the network: its training, its exchanges, its evaluation."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

import malt
from apps.harness import Array, common_mean
from apps.mlp.network import Network, Weights, cross_entropy
from apps.mlp.optimizer import OPTIMIZERS
from apps.mlp.pictures import Pictures

EVALUATED_ROWS: Final = 1000
"""The number of rows that are evaluated at once."""


class Learner:
    """One rank's replica of the network. Each of `vectors` carries one layer, and its array is that layer's weights."""

    def __init__(self, weights: Sequence[Weights], mine: Pictures, options: Namespace) -> None:
        self.weights, self._every = weights, options.exchange_every
        self._network = Network(weights, options.l2)
        self._optimizers = [OPTIMIZERS[options.optimizer].make(layer) for layer in weights]
        self.vectors = [
            malt.vector(layer, graph=options.graph, sync=options.sync, check_finite=True, name=f"layer {place}")
            for place, layer in enumerate(weights, 1)
        ]
        self._batch = options.batch
        self.take(mine)
        self._batches = 0

    def take(self, mine: Pictures) -> None:
        """Replace the pictures by `mine`, after rows were dealt anew. Local."""
        self._mine = mine
        self._chosen = np.empty((min(self._batch, len(mine)), mine.pixels.shape[1]), np.uint8)

    def learn(self, order: Array, step: float) -> None:
        """Take one step of size `step` on the pictures in `order`. Then exchange, if that is due. One-sided.

        FloatingPointError: the loss is not finite. Looked for when an exchange is due, before anything is sent.
        """
        labels = self._show(order)
        logits = self._network.forward(len(order))
        self._batches += 1
        due = self._batches % self._every == 0
        if due and not math.isfinite(cross_entropy(logits, labels)):
            raise FloatingPointError(too_large(f"now {step:.3g}"))
        for layer in self._network.backward(labels):
            self._optimizers[layer].update(self._network.gradients[layer], step)
            if due:
                self.vectors[layer].scatter()  # travels while the gradients below are computed
        if due:
            for vector in reversed(self.vectors):
                vector.gather(malt.AVG)

    def state(self) -> dict[str, Any]:
        """What a learner of the same sizes can resume from, on any number of ranks: views. Local."""
        state: dict[str, Any] = {}
        for place, (layer, optimizer) in enumerate(zip(self.weights, self._optimizers, strict=True), 1):
            state[f"layer_{place}"] = layer
            state |= {f"layer_{place}_{name}": value for name, value in optimizer.state().items()}
        return state

    def restore(self, state: Mapping[str, Any], epochs: int) -> None:
        """Resume from `state`, the same on all ranks, after `epochs` epochs. Copies. Local."""
        for place, (layer, optimizer) in enumerate(zip(self.weights, self._optimizers, strict=True), 1):
            layer[:] = state[f"layer_{place}"]
            optimizer.restore({name: state[f"layer_{place}_{name}"] for name in optimizer.state()})
        self._batches = epochs * -(-len(self._mine) // self._batch)

    def finish(self) -> None:
        """Make the weights the same on all ranks: the mean over the ranks that have trained. Collective."""
        for vector in self.vectors:
            vector.close()
        common_mean(self.weights, counts=self._batches > 0)

    def _show(self, order: Array) -> Any:
        """Copy the pictures in `order` into the network. Returns their labels."""
        chosen = np.take(self._mine.pixels, order, axis=0, out=self._chosen[: len(order)], mode="clip")
        _show(self._network, chosen, self._mine.white)
        return self._mine.labels[order]


def evaluate(weights: Sequence[Weights], some: Pictures) -> tuple[float, float]:
    """The mean cross-entropy, and the share of pictures that are classified correctly. Local."""
    network = Network(weights)
    loss, right = 0.0, 0
    for start in range(0, len(some), EVALUATED_ROWS):
        labels = some.labels[start : start + EVALUATED_ROWS]
        _show(network, some.pixels[start : start + EVALUATED_ROWS], some.white)
        logits = network.forward(len(labels))
        loss += cross_entropy(logits, labels)
        right += int((logits.argmax(axis=1) == labels).sum())
    return loss / len(some), right / len(some)


def too_large(step: str) -> str:
    """The message for a loss that is not finite."""
    return f"the training loss is not finite: the step size, {step}, is too large"


def _show(network: Network, pixels: Any, white: int) -> None:
    """Copy pictures into the network, with pixels scaled to 0..1."""
    np.multiply(pixels, np.float32(1 / white), out=network.inputs(len(pixels)), dtype=np.float32)
