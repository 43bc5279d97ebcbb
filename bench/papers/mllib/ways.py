"""The ways in which ranks train one linear model: what they send, when, and through whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

import malt
from bench.harness.traffic import Edges, since
from bench.papers.mllib.task import Task
from malt.models import linear
from malt.models.linear import Examples, Order, Params

SECONDS_A_ROW = 1e-7
"""What a rank of the simulation computes for a row: ten a microsecond, as apps.svm on rcv1-ccat."""
Reached = Callable[[int, Params], bool]
"""Whether the training is over after so many steps, with this model on this rank."""


class Setting(NamedTuple):
    """What is searched for each way."""

    step: float
    """The step size at first, times the mean |x|^2 of the rows."""
    share: float
    """The share of its rows that a rank visits between two steps of communication."""


class Way(NamedTuple):
    """A way to train, and what is searched of it."""

    name: str
    train: Callable[[Way, Training], Edges]
    """What one rank does. It returns the bytes that it has sent to each peer, and read from its memory."""
    steps: tuple[float, ...]
    """Of `Setting`."""
    shares: tuple[float, ...]
    algorithm: str = "reduce-scatter"
    """Of malt.allreduce."""
    op: str = "mean"
    """What becomes of the models of the ranks."""

    @property
    def settings(self) -> list[Setting]:
        """The grid."""
        return [Setting(step, share) for share in self.shares for step in self.steps]


class Training(NamedTuple):
    """What one rank trains on."""

    task: Task
    mine: Examples
    setting: Setting
    reached: Reached
    generator: np.random.Generator

    @property
    def step(self) -> float:
        return self.setting.step / self.task.square

    def parts(self) -> Iterator[Order]:
        """The rows to visit before each exchange, epoch after epoch. Endless."""
        count = len(self.mine.labels)
        length = max(1, round(self.setting.share * count))
        for part in parts(length, lambda: linear.visiting_order(count, self.generator)):
            malt.compute(SECONDS_A_ROW * length)
            yield part


def parts(length: int, draw: Callable[[], Order]) -> Iterator[Order]:
    """Parts of `length` rows of the orders that `draw` returns, one after the other. Endless."""
    left: Order = np.empty(0, np.int32)
    while True:
        while len(left) < length:
            left = np.concatenate([left, draw()])
        part, left = left[:length], left[length:]
        yield part


def send_gradient(way: Way, training: Training) -> Edges:
    """A step of communication is one step along the mean gradient of all ranks' batches (MLlib). Collective."""
    task, begun = training.task, sent()
    model: Params = np.zeros(task.n_features + 1, np.float32)
    gradient = np.empty_like(model)
    for number, batch in enumerate(training.parts(), 1):
        linear.subgradient(task.problem, training.mine, batch, model, gradient)
        malt.allreduce(gradient, algorithm=way.algorithm)
        model -= np.float32(training.step / number**0.5) * gradient
        if training.reached(number, model):
            return since(begun, sent())
    raise AssertionError


def send_model(way: Way, training: Training) -> Edges:
    """A step of communication is the mean of the models of all ranks, or the sum of their changes. Collective."""
    task, begun = training.task, sent()
    model: Params = np.zeros(task.n_features + 1, np.float32)
    before, trained = model.copy(), 0.0
    for number, part in enumerate(training.parts(), 1):
        trained = linear.train(task.problem, training.mine, part, model, training.step, trained)
        if way.op == "sum":
            model -= before
        malt.allreduce(model, op=way.op, algorithm=way.algorithm)
        if way.op == "sum":
            model += before
            before[:] = model
        if training.reached(number, model):
            return since(begun, sent())
    raise AssertionError


def push_changes(way: Way, training: Training) -> Edges:
    """A step of communication adds the changes of all models at the owners of the weights: a parameter server whose
    servers are the ranks. Of means each change counts an N-th. Collective.
    """  # fmt: skip
    task = training.task
    trained, factor = 0.0, np.float32(1 if way.op == "sum" else 1 / malt.size())
    with malt.sharded(task.n_features + 1) as weights:
        for number, part in enumerate(training.parts(), 1):
            before = weights.pull()
            if number > 1 and training.reached(number - 1, before):
                peers = weights.statistics().peers
                break
            model: Params = before.copy()
            malt.barrier()  # all have pulled before anybody pushes
            trained = linear.train(task.problem, training.mine, part, model, training.step, trained)
            weights.push(factor * (model - before))
            malt.barrier()
    return {peer: edge.bytes_sent + edge.bytes_read for peer, edge in peers.items()}


def sent() -> Edges:
    """What malt.allreduce has sent on this rank so far. Local."""
    return {peer: edge.bytes_sent for peer, edge in malt.init().statistics().peers.items()}


GRADIENT_STEPS = tuple(2.0**power for power in range(12, 3, -1))
MODEL_STEPS = tuple(2.0**power for power in range(6, -7, -1))
BATCH_STEPS = tuple(2.0**power for power in range(0, -10, -1))
SHARES = (1.0, 0.1, 0.01)
MLLIB = Way("SendGradient, tree (MLlib)", send_gradient, GRADIENT_STEPS, SHARES, "tree")
MODEL_TREE = Way("SendModel, tree", send_model, MODEL_STEPS, SHARES, "tree")
MODEL_STAR = Way("SendModel, star", send_model, MODEL_STEPS, SHARES, "star")
MLLIB_STAR = Way("SendModel, reduce-scatter (MLlib*)", send_model, MODEL_STEPS, SHARES)
BATCH_SUMS = Way("sums each batch, owners", push_changes, BATCH_STEPS, SHARES[1:], op="sum")
EPOCH_MEANS = Way("means each epoch, owners", push_changes, MODEL_STEPS, (1.0,))
WAYS = (MLLIB, MODEL_TREE, MODEL_STAR, MLLIB_STAR, BATCH_SUMS, EPOCH_MEANS)
SUMS = Way("sums of changes, reduce-scatter", send_model, MODEL_STEPS, (1.0,), op="sum")
