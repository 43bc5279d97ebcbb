"""One rank's replica of a network: its steps, its exchanges, its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from malt.models.common import Sharing, common_mean
from malt.models.networks.network import Weights, cross_entropy
from malt.models.networks.optimizer import Kind, Optimizer
from malt.session.replica.exchanges import Exchanges
from malt.session.vectors.vector import vector
from vol import AVG

Array = NDArray[Any]

EVALUATED_ROWS: Final = 1000
"""The number of rows that are evaluated at once."""
USUAL: Final = 10
"""The batches between two exchanges where ranks exchange together, and at the start."""

Some = TypeVar("Some", bound="Data")


class Data(Protocol):
    """Examples with labels: pictures, rows of a matrix. Local."""

    @property
    def labels(self) -> Array:
        """(examples,), or numbers of shape (examples, outputs)."""

    def __len__(self) -> int: ...

    def chosen(self: Some, rows: Any) -> Some:
        """The examples in `rows`, in that order: a copy."""

    def show(self, network: Any, order: Array) -> None:
        """Copy the examples in `order` into the network."""


class Learner:
    """One rank's replica of the network, which takes steps. A subclass exchanges: see `LayersLearner`."""

    def __init__(self, network: Any, mine: Any, optimizers: Sequence[Optimizer]) -> None:
        self._network, self._mine, self._batches = network, mine, 0
        self.weights: Sequence[Weights] = network.weights
        self._optimizers = optimizers

    def take(self, mine: Any) -> None:
        """Replace the examples by `mine`, after rows were dealt anew. Local."""
        self._mine = mine

    def train(self, order: Array, batch: int, epoch: int, epochs: int, step_at: Callable[[float], float]) -> None:
        """Take a step on each batch of `order`, in epoch number `epoch` from 0. One-sided.

        `step_at`: the step size after a share of the training. FloatingPointError: the loss is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is an error in the end
            for start in range(0, len(order), batch):
                progress = (epoch * len(order) + start) / (len(order) * epochs)
                self.learn(order[start : start + batch], step_at(progress))

    def learn(self, order: Array, step: float) -> None:
        """Take one step of size `step` on the examples in `order`. Then exchange, if that is due. One-sided.

        FloatingPointError: the loss is not finite. Looked for when an exchange is due, before anything is sent.
        """
        self._mine.show(self._network, order)
        labels, logits = self._mine.labels[order], self._network.forward(len(order))
        self._batches += 1
        due = self._is_due(logits, labels, step)
        for layer in self._network.backward(labels):
            self._optimizers[layer].update(self._network.gradients[layer], step)
            if due:
                self._leave(layer)
        self._exchange(len(order), due)

    def _is_due(self, logits: Weights, labels: Array, step: float) -> bool:
        """Return whether an exchange follows these rows, which are counted. FloatingPointError: as `learn`."""
        return False

    def _leave(self, layer: int) -> None:
        """Send a layer, which travels while the gradients below are computed. One-sided."""

    def _exchange(self, rows: int, due: bool) -> None:
        """Exchange after a step on so many rows. One-sided."""


class LayersLearner(Learner):
    """A learner whose `vectors` carry a layer each."""

    vectors: list[Any]

    def __init__(
        self, network: Any, mine: Any, optimizers: Mapping[str, Kind], optimizer: str, batch: int, sharing: Sharing
    ) -> None:  # fmt: skip
        super().__init__(network, mine, [])
        self.loss: float | None = None
        """The mean loss of the last batch before an exchange."""
        self._batch = batch
        self.vectors = []
        self._paced = partial(exchanges_of, sharing, -(-len(mine) // batch), self.vectors)
        self._exchanges = self._paced()
        self._connect(sharing, optimizers[optimizer])

    def _connect(self, sharing: Sharing, kind: Kind) -> None:
        """Make the optimizers and the vectors, a layer each. Collective."""
        self._optimizers = [kind.make(layer) for layer in self.weights]
        self.vectors += [self._vector(sharing, place, layer) for place, layer in enumerate(self.weights, 1)]

    @staticmethod
    def _vector(sharing: Sharing, place: int, array: Weights, **more: Any) -> Any:
        common: dict[str, Any] = {"graph": sharing.graph, "sync": sharing.sync, "check_finite": True}
        return vector(array, name=f"layer {place}", **common, **more)

    def _is_due(self, logits: Weights, labels: Array, step: float) -> bool:
        due = self._exchanges.count()
        if due:
            self.loss = cross_entropy(logits, labels) / len(labels)
            if not math.isfinite(self.loss):
                raise FloatingPointError(too_large(f"now {step:.3g}"))
        return due

    def _leave(self, layer: int) -> None:
        with self._exchanges.part_of_exchange():
            self._send(layer)

    def _exchange(self, rows: int, due: bool) -> None:
        if due:
            with self._exchanges.exchange():
                for layer in reversed(range(len(self.vectors))):
                    self._gather(layer)

    def _send(self, layer: int) -> None:
        self.vectors[layer].scatter()

    def _gather(self, layer: int) -> None:
        self.vectors[layer].gather(AVG)

    def current(self) -> Sequence[Weights]:
        """The weights now: views, a layer each. Local."""
        return self.weights

    def state(self) -> dict[str, Any]:
        """Return the arrays that a learner of the same sizes can resume from, on any number of ranks: views. Local."""
        state: dict[str, Any] = {}
        for place, (layer, optimizer) in enumerate(zip(self.current(), self._optimizers, strict=True), 1):
            state[f"layer_{place}"] = layer
            state |= {f"layer_{place}_{name}": value for name, value in optimizer.state().items()}
        return state

    def own(self) -> dict[str, Any]:
        """Return the arrays that only this rank can resume from, between two exchanges of all ranks: views. Local."""
        state = self.state()
        state |= {f"layer_{place}": layer for place, layer in enumerate(self.weights, 1)}
        return {**state, "steps": [vector.steps_of_all_jobs for vector in self.vectors]}

    def restore(self, state: Mapping[str, Any], epochs: int) -> None:
        """Resume from `state`, the same on all ranks, after `epochs` epochs. Copies. Local."""
        for place, (layer, optimizer) in enumerate(zip(self.weights, self._optimizers, strict=True), 1):
            layer[:] = state[f"layer_{place}"]
            optimizer.restore({name: state[f"layer_{place}_{name}"] for name in optimizer.state()})
        for one, steps in zip(self.vectors, state.get("steps", ()), strict=False):
            one.begin_after(int(steps))
        self._batches = epochs * -(-len(self._mine) // self._batch)
        self._exchanges = self._paced(self._batches)

    def go_on_from(self, state: Mapping[str, Any], epochs: int) -> None:
        """Resume as `restore` does, on a rank that has come back."""
        self.restore(state, epochs)

    def finish(self) -> None:
        """Make the weights the same on all ranks: the mean over the ranks that have trained. Collective."""
        for one in self.vectors:
            one.close()
        common_mean(self.current(), counts=self._batches > 0)


def exchanges_of(sharing: Sharing, batches: int, vectors: Sequence[Any] = (), done: int = 0) -> Exchanges:
    """Return the exchanges of a rank that has so many batches in an epoch, and has `done` some. Local."""
    return Exchanges(sharing.every, epoch=batches or None, first=USUAL, vectors=vectors, done=done)


def logits(network: Any, some: Any) -> Weights:
    """The logits of all examples, (examples, outputs). Local."""
    parts = []
    for start in range(0, len(some), EVALUATED_ROWS):
        order = np.arange(start, min(start + EVALUATED_ROWS, len(some)), dtype=np.int32)
        some.show(network, order)
        parts.append(network.forward(len(order)).copy())
    return np.concatenate(parts)


def too_large(step: str) -> str:
    """The message for a loss that is not finite."""
    return f"the training loss is not finite: the step size, {step}, is too large"
