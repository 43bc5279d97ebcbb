"""How ranks train one linear model together: what each learns alone, and what they exchange.

A learner's part in the distributed work reads the same in all: a vector or a Replica, scatter and gather where an
exchange is due, finish.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

import malt
from apps.harness import common_mean
from apps.svm import linear
from apps.svm.linear import Examples, Order, Params, Problem

State = Mapping[str, Any]
DEPTH = 8
"""Messages that wait from each sender: one that is overwritten takes rows with it that may not come again soon."""


class Learner(Protocol):
    """One way to train together. `model` is what it has learned so far."""

    model: Params

    @property
    def vectors(self) -> Sequence[Any]:
        """What carries it."""

    def learn(self, order: Order, due: bool) -> None:
        """Train on the examples named in `order`; then, where that is `due`, exchange."""

    def take(self, data: Examples) -> None:
        """From here on `order` names examples of `data`."""

    def begin_epoch(self, place: int) -> None:
        """The epoch that begins is number `place` of this run, from 0. One that comes again is trained with the steps
        that it had before, as if what has followed had not been: it lacked rows."""

    def finish(self) -> None:
        """Make `model` one and the same on all ranks. Collective."""

    def state(self) -> State:
        """What another learner of this kind, also on another number of ranks, goes on with: views."""


def learner(
    problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace, state: State | None = None
) -> Learner:
    """The one that --average and --vector ask for; it goes on with `state`, the same on all ranks. Collective.

    ValueError: --graph or --sync."""
    gradient, sparse = options.average == "gradient", options.vector == "sparse" and options.average != "none"
    if gradient:
        kind = SparseGradientLearner if sparse else GradientLearner
        return kind(problem, data, n_features, eta0, options, state)
    return (SparseModelLearner if sparse else ModelLearner)(problem, data, n_features, eta0, options, state)


class ModelLearner:
    """Every rank descends on its own; models, or their changes, are averaged on the way. The result is a mean of the
    models so far (`linear.blend`): the last one alone still carries the noise of its last examples."""

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace,
        state: State | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, eta0
        self._params: Params = np.zeros(n_features + 1, np.float32)
        self.model: Params = np.zeros_like(self._params)
        self._trained, self._blended = 0.0, 0
        self._begun: list[tuple[float, int]] = []
        """`_trained` and `_blended` at the beginning of each epoch."""
        if state:
            self._params[:], self.model[:] = state["params"], state["model"]
            self._trained, self._blended = float(state["trained"]), int(state["blended"])
        self._connect(options)

    def _connect(self, options: Namespace) -> None:
        self._alone = options.average == "none" or malt.size() == 1
        average = "model" if options.average == "none" else options.average
        self._replica = malt.Replica(
            self._params, average=average, graph=options.graph, sync=options.sync, check_finite=True
        )
        self.vectors = self._replica.vectors

    def learn(self, order: Order, due: bool) -> None:
        self._trained = linear.train(self._problem, self._data, order, self._params, self._eta0, self._trained)
        self._note(order)
        if due:
            self._exchange()
            self._blended += 1
            linear.blend(self.model, self._params, self._blended)
        elif not self._blended:
            self.model[:] = self._params

    def take(self, data: Examples) -> None:
        self._data = data

    def begin_epoch(self, place: int) -> None:
        self._trained, self._blended = [*self._begun, (self._trained, self._blended)][place]
        self._begun[place:] = [(self._trained, self._blended)]

    def _note(self, order: Order) -> None:
        """What an exchange must know of the examples just trained on."""

    def _exchange(self) -> None:
        if not self._alone:
            self._replica.step()

    def finish(self) -> None:
        self._leave()
        common_mean([self.model], counts=self._trained > 0, else_all=True)
        self._params[:] = self.model

    def _leave(self) -> None:
        self._replica.close()

    def state(self) -> State:
        return {
            "params": self._params, "model": self.model, "trained": self._trained, "blended": self._blended
        }  # fmt: skip


class SparseModelLearner(ModelLearner):
    """The same, but only the weights of features that were in the rows since the last exchange travel. Shrinking, which
    changes all weights, does so on all ranks alike."""

    def _connect(self, options: Namespace) -> None:
        self._delta = options.average == "delta"
        self._rows = linear.Touched(self._data, len(self._params) - 1, self._problem.intercept)
        self._base, self._exchanged = self._params.copy(), self._trained
        carried = np.zeros_like(self._params) if self._delta else self._params
        self._vector = malt.vector(
            carried,
            kind="sparse",
            track=False,
            graph=options.graph,
            sync=options.sync,
            depth=DEPTH,
            check_finite=True,
        )
        self.vectors = [self._vector]

    def take(self, data: Examples) -> None:
        super().take(data)
        self._rows.follow(data)

    def _note(self, order: Order) -> None:
        self._rows.note(order)

    def _exchange(self) -> None:
        rows = self._rows.take()
        first, now = (linear.step_size(self._eta0, self._problem.l2, t) for t in (self._exchanged, self._trained))
        self._base[:-1] *= np.float32(now / first)  # as far as training has shrunk what no row touched
        self._exchanged = self._trained
        if not self._delta:
            self._vector.scatter(rows)
            self._vector.gather(self._mean)
            self._base[:] = self._params
            return
        changes = self._vector.array
        changes[:] = 0
        changes[rows] = self._params[rows] - self._base[rows]
        self._vector.scatter(rows)
        self._vector.gather(malt.SUM)
        self._params[rows] = self._base[rows]
        self._params += changes / np.float32(1 + self._vector.in_degree)
        self._base[:] = self._params

    def _mean(self, own: Params, updates: list[malt.Update]) -> None:
        """own <- the mean of the models, where a row that a sender left out is as after the last exchange.
        malt.AVG would take the mean over those who sent the row: with so few, each would move it too far."""
        for update in updates:
            own += self._base
            own[update.rows] += update.values - self._base[update.rows]
        own /= np.float32(1 + len(updates))

    def _leave(self) -> None:
        self._vector.close()


class GradientLearner:
    """Ranks average the mean subgradients of their next examples at fixed weights, and take one step each."""

    kind = "dense"

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace,
        state: State | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, eta0
        self._trained = 0
        self._begun: list[int] = []
        """`_trained` at the beginning of each epoch."""
        self.model: Params = np.zeros(n_features + 1, np.float32)
        if state:
            self.model[:], self._trained = state["model"], int(state["trained"])
        self._vector = malt.vector(
            n_features + 1, kind=self.kind, graph=options.graph, sync=options.sync, check_finite=True
        )
        self.vectors = [self._vector]

    def take(self, data: Examples) -> None:
        self._data = data

    def begin_epoch(self, place: int) -> None:
        self._trained = [*self._begun, self._trained][place]
        self._begun[place:] = [self._trained]

    def learn(self, order: Order, due: bool) -> None:
        gradient = self._vector.array
        linear.subgradient(self._problem, self._data, order, self.model, gradient)
        self._average(order, gradient)
        step = linear.gradient_step(self._eta0, self._problem.l2, self._trained, len(order))
        self.model -= np.float32(step) * gradient
        self._trained += len(order)

    def _average(self, order: Order, gradient: Params) -> None:
        self._vector.scatter()
        self._vector.gather(malt.AVG)

    def finish(self) -> None:
        self._vector.close()
        common_mean([self.model])

    def state(self) -> State:
        return {"model": self.model, "trained": self._trained}


class SparseGradientLearner(GradientLearner):
    """The same, but of the gradient only what the rows gave travels; that of the penalty each rank knows."""

    kind = "sparse"

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace,
        state: State | None = None,
    ) -> None:  # fmt: skip
        super().__init__(problem, data, n_features, eta0, options, state)
        self._rows = linear.Touched(data, n_features, problem.intercept)

    def take(self, data: Examples) -> None:
        super().take(data)
        self._rows.follow(data)

    def _average(self, order: Order, gradient: Params) -> None:
        self._rows.note(order)
        rows = self._rows.take()
        penalty = np.float32(self._problem.l2) * self.model
        penalty[-1] = 0  # the intercept is not shrunk
        own = gradient[rows] - penalty[rows]
        gradient[:] = 0
        gradient[rows] = own
        self._vector.scatter(rows)
        merged = self._vector.gather(malt.SUM)
        gradient /= np.float32(1 + merged.count)
        gradient += penalty
