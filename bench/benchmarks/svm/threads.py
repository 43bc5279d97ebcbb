"""The kernel of apps.svm on threads of one process, without ranks: one model that all change, or a model for each.

Threads that change one model without a lock are those of Niu, Recht, Re and Wright, "Hogwild!" (2011). Threads with a
model each exchange nothing: their rate is a bound for that of ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit, prange, set_num_threads

from bench.benchmarks.svm.task import L2, PROBLEM, Task
from malt.models import linear
from malt.models.linear import compiled

THREADS = 2


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
def descend(
    data: Any, order: Any, params: Any, loss: int, l2: float, eta0: float, t: float, intercept_rate: float
) -> float:
    """As compiled.train but for the shrinking at the end: returns the scale that params must still be multiplied by.

    It is a copy: the kernel is an eighth slower where it calls this function.
    """
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    eta_first = eta0 / (1 + l2 * eta0 * t)
    rate = l2 * eta_first
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        scale = 1 / (1 + rate * k)
        y = labels[row]
        z = y * (np.float32(scale) * compiled._dot(values, columns, start, stop, params) + params[n_features])
        slope = compiled.dloss_of(loss, z) * y
        if slope != 0:
            step = np.float32(-eta_first * slope)
            for j in range(start, stop):
                params[np.uint32(columns[j])] += step * values[j]
            params[n_features] -= np.float32(intercept_rate * eta_first * scale * slope)
    return 1 / (1 + rate * order.size)


@njit(parallel=True, nogil=True, error_model="numpy")
def _descend(data: Any, orders: Any, models: Any, loss: int, l2: float, eta0: float, t: float) -> None:
    """Each thread trains on its row of `orders`, after t examples that the model has seen: its own, or the only one.

    A thread counts only its own examples, and shrinks the weights for all threads of its model. eta0 / (1 + l2 eta0 t)
    is the same with sharers * l2 and t / sharers.
    """
    sharers = len(orders) // len(models)
    scales = np.empty(len(orders))
    for thread in prange(len(orders)):
        scales[thread] = descend(
            data, orders[thread], models[thread // sharers], loss, sharers * l2, eta0, t / sharers, 0.0
        )  # fmt: skip
    for model in models:
        compiled.rescale(model, scales[0])


class Threads:
    """Trainings on the rows of a task, with the step that apps.svm chooses on one rank."""

    def __init__(self, task: Task) -> None:
        self._task = task
        rows = len(task.data.y)
        self._data = linear.examples(task.data.X, task.data.y, np.random.default_rng(0).permutation(rows))
        self._eta0 = linear.first_step(PROBLEM, self._data, task.width)
        set_num_threads(THREADS)
        self.rate(1, 1)  # compiles

    def seconds(self, seed: int) -> float:
        """Seconds until one model of all threads reaches the target, with those of the choice of the first step.

        The threads meet as often as ranks exchange, for the running mean that apps.svm takes then.
        """
        task, generator = self._task, np.random.default_rng(seed)
        models, trained, most = self._zeros(1), 0, THREADS * task.exchange_every
        mean, taken = np.zeros_like(models[0]), task.step_search_s(1)
        for _ in range(task.epochs):
            start = time.perf_counter()
            for part in self._parts(generator, most):
                _descend(self._data, part, models, PROBLEM.code, L2, self._eta0, float(trained))
                trained += part.size
                linear.blend(mean, models[0], -(-trained // most))
            taken += time.perf_counter() - start
            if task.objective(mean[:-1]) <= task.target:
                return taken
        return float("inf")

    def rate(self, count: int, epochs: int) -> float:
        """Examples per second, over so many epochs, of threads that have `count` models in all."""
        models, generator, trained = self._zeros(count), np.random.default_rng(0), 0
        start = time.perf_counter()
        for _ in range(epochs):
            for part in self._parts(generator, len(self._data.labels)):
                _descend(self._data, part, models, PROBLEM.code, L2, self._eta0, trained / count)
                trained += part.size
        return trained / (time.perf_counter() - start)

    def _zeros(self, count: int) -> np.ndarray[Any, Any]:
        return np.zeros((count, self._task.width + 1), np.float32)

    def _parts(self, generator: np.random.Generator, most: int) -> Iterator[np.ndarray[Any, Any]]:
        """The rows of an epoch, in parts of at most `most`: a row of numbers for each thread, which meet after it."""
        order = linear.visiting_order(len(self._data.labels), generator)
        for start in range(0, len(order) - len(order) % THREADS, most):
            part = order[start : start + most]
            yield part[: len(part) // THREADS * THREADS].reshape(THREADS, -1)
