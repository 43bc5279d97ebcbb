"""The layers of an estimator's network, and how all ranks train them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.kernels.networks import OPTIMIZERS, Network, Optimizer, Weights, first_weights, step_at
from malt.replica.replica import Replica
from malt.session.collectives import allreduce
from malt.session.session import size
from malt.sklearn.rows import Rows

_EVALUATED_ROWS: Final = 1000
"""The rows that are evaluated at once."""


@dataclass
class Layers:
    """A network, and what a training goes on from: the same on all ranks."""

    weights: list[Weights]
    solver: str
    state: list[dict[str, Any]]
    """Of the optimizer of each layer."""
    trained: int = 0
    """The epochs of all calls."""

    @staticmethod
    def first(sizes: list[int], solver: str, seed: int) -> Layers:
        """Layers before any training, of random weights. Local."""
        weights = first_weights(sizes, np.random.default_rng(seed))
        return Layers(weights, solver, [OPTIMIZERS[solver].make(layer).state() for layer in weights])

    @property
    def sizes(self) -> list[int]:
        """The neurons of each layer, those of the inputs first."""
        return [*(len(layer) - 1 for layer in self.weights), self.weights[-1].shape[1]]

    def copy(self) -> Layers:
        """A copy with arrays of its own."""
        state = [{name: np.copy(value) for name, value in one.items()} for one in self.state]
        return Layers([layer.copy() for layer in self.weights], self.solver, state, self.trained)

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """What the last layer gives for the rows of X, of shape (rows, outputs), float64. Local."""
        # float64: rounding depends on how many rows BLAS is given at once
        network = Network([layer.astype(np.float64) for layer in self.weights])
        parts: list[Any] = [np.empty((0, self.sizes[-1]))]
        for start in range(0, len(X), _EVALUATED_ROWS):
            some = X[start : start + _EVALUATED_ROWS]
            network.inputs(len(some))[:] = some
            parts.append(network.forward(len(some)).copy())
        return np.concatenate(parts)


class Training:
    """One training of `layers`, which it changes. Local.

    `batch`: the rows of a step, on all ranks together: so several ranks make as many steps as one, with the mean of
    gradients of as many rows. `targets`: codes of classes, or numbers, by row.
    """

    def __init__(
        self, name: str, layers: Layers, loss: str, l2: float, batch: int, rows: Rows, X: Any, targets: NDArray[Any]
    ) -> None:  # fmt: skip
        self._name, self._layers, self._batch = name, layers, -(-batch // size())
        self._rows, self._X, self._targets = rows, X, targets
        self._network = Network(layers.weights, l2, loss=loss)
        self._optimizers: list[Optimizer] = [OPTIMIZERS[layers.solver].make(layer) for layer in layers.weights]
        for optimizer, state in zip(self._optimizers, layers.state, strict=True):
            optimizer.restore(state)

    def train(self, epochs: int, step: float, falls: bool, exchange: Mapping[str, Any]) -> None:
        """Train for so many epochs. Collective. `falls`: whether the step size falls to 0.

        FloatingPointError, on all ranks: the weights are not finite.
        """
        generator = self._rows.generator()
        with Replica(self._layers.weights, **exchange, check_finite=True, name=self._name) as replica:
            for epoch in range(epochs):
                order = self._order(generator)
                for start in range(0, len(order), self._batch):
                    part = order[start : start + self._batch]
                    progress = (epoch + start / len(order)) / epochs
                    self._learn(part, step_at(step, progress) if falls else step)
                    replica.step(len(part))
        self._layers.trained += epochs
        self._layers.state = [_mean(optimizer.state()) for optimizer in self._optimizers]
        if not all(np.isfinite(layer).all() for layer in self._layers.weights):
            raise FloatingPointError(f"{self._name}: the weights diverge: scale the features, or take smaller steps")

    def _order(self, generator: np.random.Generator) -> NDArray[np.intp]:
        """The rows of an epoch: more, once another rank has failed."""
        rows = self._rows.mine()
        if self._rows.weights is None:
            return generator.permutation(rows)
        drawn: NDArray[np.intp] = rows[self._rows.weights.drawn(np.arange(len(rows)), rows, generator)]
        return drawn

    def _learn(self, part: NDArray[np.intp], step: float) -> None:
        """Take one step on these rows."""
        self._network.inputs(len(part))[:] = self._X[part]
        with np.errstate(over="ignore", invalid="ignore"):  # weights that are not finite are an error at the end
            self._network.forward(len(part))
            for layer in self._network.backward(self._targets[part]):
                self._optimizers[layer].update(self._network.gradients[layer], step)


def _mean(state: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of the states that all ranks have of an optimizer. Collective."""
    found = {name: np.array(value, np.float64 if np.ndim(value) == 0 else None) for name, value in state.items()}
    for value in found.values():
        whole = value.reshape(-1)
        allreduce(whole)
        value[...] = whole.reshape(value.shape)
    return found
