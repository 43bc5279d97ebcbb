"""A network whose first layer reads sparse rows: what a rank learns, and the rows of weights that it sends.

Ranks add up the changes of these rows. A mean with the own row would halve the change of a feature that one rank alone
has seen. The optimizer is AdaGrad, whose state is one number a weight: momentum and Adam change every weight in each
step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from malt.models.common import Array, Sharing
from malt.models.linear import Order
from malt.models.networks import compiled
from malt.models.networks.learner import LayersLearner
from malt.models.networks.network import Weights
from malt.models.networks.optimizer import OPTIMIZERS, Adagrad, Kind
from malt.models.networks.sparse import SparseNetwork
from vol import AVG, SUM

__all__ = ["DEPTH", "SparseAdagrad", "SparseLearner", "Touched", "TouchedNetwork"]

DEPTH: Final = 8
"""Slots for each sender of the first layer. An overwritten message would lose rows that may not be sent again soon."""


class Touched(NamedTuple):
    """The gradient of the weights that a batch touches: `values` of the given rows, the last of which is the bias."""

    rows: Order
    values: Weights


class TouchedNetwork(SparseNetwork):
    """A `SparseNetwork` whose gradient of the first layer is a `Touched`."""

    def _first_gradient(self) -> Touched:
        self._places = np.full(len(self.weights[0]), -1, np.int32)
        self._touched = self._memory(0)
        """Memory for the gradient, which grows with the batches."""
        return self._touched

    def _memory(self, rows: int) -> Touched:
        return Touched(np.empty(rows, np.int32), np.empty((rows, self.weights[0].shape[1]), np.float32))

    def _descend(self, deltas: Weights) -> None:
        starts = self._data.starts
        most = 1 + int((starts[self._order + 1] - starts[self._order]).sum())
        if most > len(self._touched.rows):
            self._touched = self._memory(2 * most)
        count = compiled.backward_touched(self._data, self._order, deltas, self._places, *self._touched)
        self.gradients[0] = Touched(self._touched.rows[:count], self._touched.values[:count])


class SparseAdagrad(Adagrad):
    """AdaGrad of a first layer: it changes the rows that the gradient names, with their l2, and no others.

    What it adds to the weights it adds to `changes` too.
    """

    def __init__(self, weights: Weights, changes: Weights, l2: float) -> None:
        self._weights, self._changes, self._l2 = weights, changes, np.float32(l2)
        self._squares = np.zeros_like(weights)

    def update(self, gradient: Any, step: float) -> None:
        rows, values = gradient
        arrays = self._weights, self._squares, self._changes
        compiled.adagrad(*arrays, rows, values, np.float32(step), self._l2)


class SparseLearner(LayersLearner):
    """A learner whose first layer sends what it has changed since the last exchange. Ranks add up their changes.

    The array of the first vector holds changes, of rows of weights. In rows that were touched since the last exchange
    they are this rank's, and are in its weights already. In others they are what came, and are moved into the weights
    when a batch touches them next. `capacity`: the most rows that are touched between two exchanges.
    """

    def __init__(
        self, network: TouchedNetwork, mine: Any, l2: float, batch: int, sharing: Sharing, capacity: int
    ) -> None:  # fmt: skip
        first = network.weights[0]
        self._changes = np.zeros_like(first)
        self._marks, self._touched, self._count = np.zeros(len(first), np.uint8), np.empty(capacity, np.int32), 0
        """A mark for each row that was touched since the last exchange, and these rows."""
        self._l2 = l2
        super().__init__(network, mine, OPTIMIZERS, "adagrad", batch, sharing)

    def _connect(self, sharing: Sharing, kind: Kind) -> None:
        weights = self.weights
        self._optimizers = [
            SparseAdagrad(weights[0], self._changes, self._l2), *(kind.make(layer) for layer in weights[1:])
        ]
        capacity = len(self._touched)
        first = self._vector(sharing, 1, self._changes, kind="sparse", track=False, depth=DEPTH, capacity=capacity)
        self.vectors += [first, *(self._vector(sharing, place, layer) for place, layer in enumerate(weights[1:], 2))]

    def learn(self, order: Array, step: float) -> None:
        touched = self._changes, self.weights[0], self._marks, self._touched, self._count
        self._count = compiled.mark_touched(self._mine.examples, order, *touched)
        super().learn(order, step)

    def _send(self, layer: int) -> None:
        if layer:
            return super()._send(layer)
        rows, self._count = self._touched[: self._count], 0
        self.vectors[0].scatter(rows)
        self._changes[rows] = 0
        self._marks[rows] = 0

    def _gather(self, layer: int) -> None:
        self.vectors[layer].gather(AVG if layer else SUM)

    def own(self) -> dict[str, Any]:
        """Return arrays that only this rank can resume from, with changes not sent, or not in the weights yet."""
        weights = self.weights[0].copy()  # before `state` moves some of these into them
        changes = self._changes.copy()
        own = super().own()
        self.weights[0][:], self._changes[:] = weights, changes
        touched = {"marks": self._marks, "touched": self._touched[: self._count]}
        return {**own, "layer_1": weights, "changes": changes, **touched}

    def restore(self, state: Mapping[str, Any], epochs: int) -> None:
        super().restore(state, epochs)
        if "changes" in state:
            self._changes[:], self._marks[:], self._count = state["changes"], state["marks"], len(state["touched"])
            self._touched[: self._count] = state["touched"]

    def go_on_from(self, state: Mapping[str, Any], epochs: int) -> None:
        super().go_on_from(state, epochs)
        self._changes[:] = 0  # those of the other rank are in its weights

    def current(self) -> Sequence[Weights]:
        compiled.settle(self._changes, self.weights[0], self._marks)
        return super().current()
