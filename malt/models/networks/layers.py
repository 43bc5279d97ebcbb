"""The layers of an estimator's network, and how all ranks train them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.models.networks.learner import Learner, logits
from malt.models.networks.network import Network, Weights, first_weights
from malt.models.networks.optimizer import OPTIMIZERS, step_at
from malt.models.rows import Rows
from malt.session.collectives import allreduce
from malt.session.replica.replica import Replica
from malt.session.session import size


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
        """Return the outputs of the last layer for the rows of X, of shape (rows, outputs), float64. Local."""
        # float64: rounding depends on how many rows BLAS is given at once
        network = Network([layer.astype(np.float64) for layer in self.weights])
        return np.asarray(logits(network, Dense(X)), np.float64)


@dataclass(frozen=True)
class Dense:
    """Rows of an array, and codes of classes, or numbers, by row. Local."""

    X: Any
    labels: Any = None

    def __len__(self) -> int:
        return len(self.X)

    def show(self, network: Network, order: NDArray[np.intp]) -> None:
        """Copy the rows in `order` into the network."""
        network.inputs(len(order))[:] = self.X[order]


class _Averaged(Learner):
    """A learner that exchanges by a Replica."""

    replica: Replica

    def _exchange(self, rows: int, due: bool) -> None:
        self.replica.step(rows)


def train(
    name: str, layers: Layers, network: Network, data: Dense, rows: Rows, batch: int, epochs: int, step: float,
    falls: bool, exchange: Mapping[str, Any],
) -> None:  # fmt: skip
    """Train `layers`, which `network` has, for so many epochs. Collective. `falls`: whether the step size falls to 0.

    `batch`: the rows of a step, on all ranks together: so several ranks make as many steps as one, with the mean of
    gradients of as many rows. FloatingPointError, on all ranks: the weights are not finite.
    """
    optimizers = [OPTIMIZERS[layers.solver].make(layer) for layer in layers.weights]
    for optimizer, state in zip(optimizers, layers.state, strict=True):
        optimizer.restore(state)
    learner, generator = _Averaged(network, data, optimizers), rows.generator()
    steps: Callable[[float], float] = partial(step_at, step) if falls else lambda _: step
    with Replica(layers.weights, **exchange, check_finite=True, name=name) as learner.replica:
        for epoch in range(epochs):
            order = _order(rows, generator)
            learner.train(order, -(-batch // size()), epoch, epochs, steps)
    layers.trained += epochs
    layers.state = [_mean(optimizer.state()) for optimizer in optimizers]
    if not all(np.isfinite(layer).all() for layer in layers.weights):
        raise FloatingPointError(f"{name}: the weights diverge: scale the features, or take smaller steps")


def _order(rows: Rows, generator: np.random.Generator) -> NDArray[np.intp]:
    """The rows of an epoch: more, once another rank has failed. Local."""
    mine = rows.mine()
    if rows.weights is None:
        return generator.permutation(mine)
    drawn: NDArray[np.intp] = mine[rows.weights.drawn(np.arange(len(mine)), mine, generator)]
    return drawn


def _mean(state: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of the states that all ranks have of an optimizer. Collective."""
    found = {name: np.array(value, np.float64 if np.ndim(value) == 0 else None) for name, value in state.items()}
    for value in found.values():
        whole = value.reshape(-1)
        allreduce(whole)
        value[...] = whole.reshape(value.shape)
    return found
