"""Learners: the ways in which ranks train one linear model together.

They differ in what ranks exchange. Each has a vector or a Replica, scatters and gathers when an exchange is due, and
makes the model the same on all ranks in `finish`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

import malt
from apps.harness import common_mean, graph_of
from malt.models import linear
from malt.models.linear import Examples, Order, Params, Problem

State = Mapping[str, Any]
DEPTH = 8
"""Slots for each sender of sparse vectors. An overwritten message would lose rows that may not be sent again soon."""

_OWN = "own"
"""The entry of a state that a rank has of its own, with what it has exchanged."""


class Learner(Protocol):
    """A way to train together. `model` is the current model. Methods are local where they do not say otherwise."""

    model: Params

    @property
    def vectors(self) -> Sequence[Any]:
        """The vectors that carry the model to other ranks."""

    def learn(self, order: Order) -> None:
        """Train on the examples of the rows in `order`. Local; with gradients One-sided."""

    def exchange(self) -> None:
        """Exchange, as is due, what has been learned; gradients have been. One-sided."""

    def take(self, data: Examples) -> None:
        """Replace the examples by `data`, after rows were dealt anew."""

    def begin_epoch(self, place: int) -> None:
        """Prepare epoch number `place` of this run, from 0. An epoch that comes again has the same step sizes again."""

    def finish(self) -> None:
        """Make `model` the same on all ranks, bit by bit. Collective."""

    def state(self) -> State:
        """What a learner of this kind can resume from, on any number of ranks: views."""

    def own(self) -> State:
        """What this rank alone can resume from, between two exchanges that all ranks have made: views."""

    def go_on_from(self, state: State, epochs: int) -> None:
        """Go on, as a rank that has come back, from the state of another one, after so many epochs. Local."""


def learner(
    problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace, state: State | None = None
) -> Learner:
    """The learner for the options --average and --vector. It resumes from `state`, the same on all ranks. Collective.

    ValueError: --graph or --sync is not valid.
    """
    gradient, sparse = options.average == "gradient", options.vector == "sparse" and options.average != "none"
    if gradient:
        kind = SparseGradientLearner if sparse else GradientLearner
        return kind(problem, data, n_features, eta0, options, state)
    return (SparseModelLearner if sparse else ModelLearner)(problem, data, n_features, eta0, options, state)


class ModelLearner:
    """Every rank trains on its own, and ranks average their models or the changes of their models.

    The result is a weighted mean of the models so far (`linear.blend`), which has less noise than the last of them.

    "reweighted": an example counts as many times as there are ranks, so each rank goes as far as one that has all rows
    (Zhang and Jordan, "Splash", 2015). With Bottou's step sizes, that is a first step as many times as large.
    """

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace,
        state: State | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, eta0
        self._weight = malt.size() if options.average == "reweighted" else 1
        self._params: Params = np.zeros(n_features + 1, np.float32)
        self.model: Params = np.zeros_like(self._params)
        self._trained, self._blended = 0.0, 0
        self._begun: list[tuple[float, int]] = []
        """`_trained` and `_blended` at the start of each epoch."""
        if state:
            self._params[:], self.model[:] = state["params"], state["model"]
            self._trained, self._blended = float(state["trained"]), int(state["blended"])
        self._connect(options)
        if state and _OWN in state:
            self._resume(state[_OWN])

    def _connect(self, options: Namespace) -> None:
        self._alone = options.average == "none" or malt.size() == 1
        average = "delta" if options.average == "delta" else "model"
        self._replica = malt.Replica(  # it counts exchanges: when they are due --exchange-every says
            self._params, every=1, average=average, graph=graph_of(options), sync=options.sync, check_finite=True
        )
        self.vectors = self._replica.vectors

    def learn(self, order: Order) -> None:
        eta0 = self._weight * self._eta0
        self._trained = linear.train(self._problem, self._data, order, self._params, eta0, self._trained)
        self._note(order)
        if not self._blended:
            self.model[:] = self._params

    def exchange(self) -> None:
        self._exchange()
        self._blended += 1
        linear.blend(self.model, self._params, self._blended)

    def take(self, data: Examples) -> None:
        self._data = data

    def begin_epoch(self, place: int) -> None:
        self._trained, self._blended = [*self._begun, (self._trained, self._blended)][place]
        self._begun[place:] = [(self._trained, self._blended)]

    def _note(self, order: Order) -> None:
        """Note which weights the examples of `order` touch. Only sparse vectors need it."""

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

    def own(self) -> State:
        return {**self.state(), _OWN: self._replica.state_dict()}

    def _resume(self, own: State) -> None:
        """Go on from what `own` returned beside the state. Collective."""
        self._replica.load_state_dict(own)

    def go_on_from(self, state: State, epochs: int) -> None:
        self._eta0, self.model[:] = float(state["first_step"]), state["model"]
        self._trained, self._blended = float(state["trained"]), int(state["blended"])
        self._begun = [(self._trained, self._blended)] * epochs


class SparseModelLearner(ModelLearner):
    """A ModelLearner that sends only the weights of features in the rows since the last exchange.

    Shrinking changes all weights, but by the same factor on all ranks.
    """

    def _connect(self, options: Namespace) -> None:
        self._delta = options.average == "delta"
        self._rows = linear.Touched(self._data, len(self._params) - 1, self._problem.intercept)
        self._base, self._exchanged = self._params.copy(), self._trained
        carried = np.zeros_like(self._params) if self._delta else self._params
        self._vector = malt.vector(
            carried,
            kind="sparse",
            track=False,
            graph=graph_of(options),
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
        self._base[:-1] *= np.float32(now / first)  # training has shrunk the untouched weights as much
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
        """own <- the mean of the models. A row that a sender left out counts as it was after the last exchange.

        malt.AVG is the mean over the senders of a row. These are few, and each would move the row too far.
        """
        for update in updates:
            own += self._base
            own[update.rows] += update.values - self._base[update.rows]
        own /= np.float32(1 + len(updates))

    def own(self) -> State:
        since = {"base": self._base, "touched": self._rows.marks, "exchanged": self._exchanged}
        return {**self.state(), _OWN: {**since, "steps": self._vector.steps_of_all_jobs}}

    def _resume(self, own: State) -> None:
        self._base[:], self._rows.marks[:], self._exchanged = own["base"], own["touched"], float(own["exchanged"])
        self._vector.begin_after(int(own["steps"]))

    def go_on_from(self, state: State, epochs: int) -> None:
        super().go_on_from(state, epochs)
        self._params[:] = self._base[:] = state["params"]
        self._exchanged = self._trained

    def _leave(self) -> None:
        self._vector.close()


class GradientLearner:
    """Ranks average the mean subgradients of their next examples at the same weights, and each takes one step."""

    kind = "dense"

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, options: Namespace,
        state: State | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, eta0
        self._trained = 0
        self._begun: list[int] = []
        """`_trained` at the start of each epoch."""
        self.model: Params = np.zeros(n_features + 1, np.float32)
        if state:
            self.model[:], self._trained = state["model"], int(state["trained"])
        self._vector = malt.vector(
            n_features + 1, kind=self.kind, graph=graph_of(options), sync=options.sync, check_finite=True
        )
        if state and _OWN in state:
            self._vector.begin_after(int(state[_OWN]["steps"]))
        self.vectors = [self._vector]

    def take(self, data: Examples) -> None:
        self._data = data

    def begin_epoch(self, place: int) -> None:
        self._trained = [*self._begun, self._trained][place]
        self._begun[place:] = [self._trained]

    def learn(self, order: Order) -> None:
        gradient = self._vector.array
        linear.subgradient(self._problem, self._data, order, self.model, gradient)
        self._average(order, gradient)
        step = linear.gradient_step(self._eta0, self._problem.l2, self._trained, len(order))
        self.model -= np.float32(step) * gradient
        self._trained += len(order)

    def _average(self, order: Order, gradient: Params) -> None:
        self._vector.scatter()
        self._vector.gather(malt.MEAN)

    def exchange(self) -> None:
        """Gradients have been exchanged."""

    def finish(self) -> None:
        self._vector.close()
        common_mean([self.model])

    def state(self) -> State:
        return {"model": self.model, "trained": self._trained}

    def own(self) -> State:
        return {**self.state(), _OWN: {"steps": self._vector.steps_of_all_jobs}}

    def go_on_from(self, state: State, epochs: int) -> None:
        self._eta0, self.model[:], self._trained = float(state["first_step"]), state["model"], int(state["trained"])
        self._begun = [self._trained] * epochs


class SparseGradientLearner(GradientLearner):
    """A GradientLearner that sends only the gradient of the loss. Every rank computes that of the penalty itself."""

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
        self._vector.clear()
        gradient[rows] = own
        super()._average(order, gradient)
        gradient += penalty
