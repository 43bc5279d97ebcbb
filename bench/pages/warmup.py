"""How long an outer step should wait: three loops on two simulated ranks, by the exchanges before its first step.

    python -m bench.pages.warmup [--json docs/choosing.json]

It trains on MNIST. Under bsp every run has the same results.
"""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.mlp import pictures
from bench.harness import datasets, document
from bench.harness.document import Measured, say

Array = NDArray[np.float32]
RANKS, ROWS, SEEDS, EPOCHS = 2, 50_000, 3, 3
WARMUPS = (None, 0, 1, 2, 5, 10, 20)
"""None: without an outer step."""


class Loop(NamedTuple):
    """Layers of a classifier of pictures, trained by SGD in batches, from random weights."""

    name: str
    sizes: tuple[int, ...]
    batch: int
    rate: float
    every: int
    has_sigmoids: bool = False
    """Sigmoids and squared errors, and weights with a deviation of 1; else ReLU and cross-entropy."""

    def start(self, seed: int) -> list[Array]:
        """The weights and biases of each layer."""
        draw, scale = np.random.default_rng(seed), 1.0 if self.has_sigmoids else 0.05
        shapes = [shape for pair in zip(self.sizes, self.sizes[1:], strict=False) for shape in (pair, pair[1:])]
        return [(draw.standard_normal(shape) * scale).astype(np.float32) for shape in shapes]

    def outputs(self, w: list[Array], x: Array) -> list[Array]:
        """What each layer makes of `x`, and `x` itself first."""
        made = [x]
        for weights, bias in zip(w[::2], w[1::2], strict=True):
            z = made[-1] @ weights + bias
            if self.has_sigmoids:
                made.append(1 / (1 + np.exp(-z)))
            elif len(made) < len(self.sizes) - 1:
                made.append(np.maximum(z, 0))
            else:
                z = np.exp(z - z.max(1, keepdims=True))
                made.append(z / z.sum(1, keepdims=True))
        return made

    def step(self, w: list[Array], x: Array, y: Array) -> None:
        """A step by the mean gradient of a batch."""
        made = self.outputs(w, x)
        slope = made[-1] - y
        for layer in range(len(w) // 2, 0, -1):
            if self.has_sigmoids:
                slope = slope * made[layer] * (1 - made[layer])
            elif layer < len(w) // 2:
                slope = slope * (made[layer] > 0)
            weights, bias = w[2 * layer - 2 : 2 * layer]
            gradient, slope, ends = made[layer - 1].T @ slope, slope @ weights.T, slope.sum(0)
            weights -= self.rate / len(x) * gradient
            bias -= self.rate / len(x) * ends


LOOPS = (
    Loop("784-30-10, sigmoids", (784, 30, 10), 10, 3.0, 20, has_sigmoids=True),
    Loop("784-30-10, sigmoids", (784, 30, 10), 10, 3.0, 50, has_sigmoids=True),
    Loop("784-30-10, sigmoids", (784, 30, 10), 10, 3.0, 250, has_sigmoids=True),
    Loop("784-100-10, ReLU", (784, 100, 10), 32, 0.1, 39),
    Loop("softmax regression", (784, 10), 32, 0.1, 39),
)


class Data:
    """Training and test pictures."""

    def __init__(self) -> None:
        train, test = pictures.load(datasets.MNIST, 0)
        self.x, self.test_x = (one.pixels.astype(np.float32) / one.white for one in (train, test))
        self.y, self.test_labels = np.eye(10, dtype=np.float32)[train.labels], test.labels


def accuracy(loop: Loop, data: Data, warmup: int | None, seed: int) -> float:
    """The share of test pictures that the common model classifies correctly in the end."""

    def train(rank: int) -> float:
        w = loop.start(seed)
        outer = None if warmup is None else malt.optim.nesterov(0.7, 0.9, warmup)
        with malt.Replica(w, loop.every, average="delta", sync="bsp", outer=outer) as replica:
            for epoch in range(EPOCHS):
                mine = np.random.default_rng([seed, epoch]).permutation(ROWS)[rank::RANKS]
                for first in range(0, len(mine) - loop.batch + 1, loop.batch):
                    rows = mine[first : first + loop.batch]
                    loop.step(w, data.x[rows], data.y[rows])
                    replica.step()
        return float((loop.outputs(w, data.test_x)[-1].argmax(1) == data.test_labels).mean())

    return malt.simulate(train, RANKS)[0]


def measured(_: Namespace) -> Measured:
    """The table of the page: by loop, the median and the least accuracy of all seeds."""
    datasets.need(datasets.MNIST)
    data = Data()
    titles = ["no outer step" if one is None else f"warmup={one}" for one in WARMUPS]
    rows = [["loop", "an exchange every", *titles]]
    with np.errstate(over="ignore"):
        for loop in LOOPS:
            say(f"{loop.name}, an exchange every {loop.every} batches")
            found = [[accuracy(loop, data, warmup, seed) for seed in range(SEEDS)] for warmup in WARMUPS]
            cells = [f"{np.median(one):.3f}, {min(one):.3f}" for one in found]
            rows.append([loop.name, f"{loop.every} batches of {loop.batch}", *cells])
    return {"tables": {"warmup": rows}, "figures": {}}


if __name__ == "__main__":
    document.measure("bench.pages.warmup", str(__doc__), measured)
