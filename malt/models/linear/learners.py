"""Learners: the ways in which ranks train one linear model together.

They differ in what ranks exchange. Each has a vector or a Replica, scatters and gathers when an exchange is due, and
makes the model the same on all ranks in `finish`. All have the same methods. `model` is the current model. `vectors`
carry it to other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from malt.models.common import Sharing, common_mean
from malt.models.linear import descent
from malt.models.linear.compiled import Examples, Order, Params
from malt.models.linear.descent import Classes, OneVsRest
from malt.models.linear.problem import Problem
from malt.models.linear.rows import Touched
from malt.session.replica.replica import Replica
from malt.session.session import size
from malt.session.vectors.vector import vector
from vol import MEAN, SUM, Update

State = Mapping[str, Any]
DEPTH = 8
"""Slots for each sender of sparse vectors. An overwritten message would lose rows that may not be sent again soon."""

_OWN = "own"
"""The entry of a state that a rank has of its own, with what it has exchanged."""


def learner(
    problem: Problem, data: Examples, n_features: int, eta0: float, sharing: Sharing, average: str = "model",
    sends: str = "dense", state: State | None = None,
) -> Learner:  # fmt: skip
    """The learner of a way to average and of what it sends. Collective. It resumes from `state`, alike on all ranks.

    `average`: "model", "reweighted", "delta", "gradient" or "none". `sends`: "dense" or "sparse". ValueError: `sharing`
    is not valid.
    """
    if average == "gradient":
        return (SparseGradientLearner if sends == "sparse" else GradientLearner)(
            problem, data, n_features, eta0, sharing, state
        )  # fmt: skip
    kind = SparseModelLearner if sends == "sparse" and average != "none" else ModelLearner
    return kind(problem, data, np.zeros(n_features + 1, np.float32), [eta0], sharing, average, state)


class Starts:
    """The counts of a learner at the start of each epoch. They only rise. Local."""

    def __init__(self) -> None:
        self._counted: dict[int, Any] = {}

    def of(self, epoch: int, now: Any) -> Any:
        """Begin `epoch`; return the counts at its first start: `now`, unless it or a later one had begun.

        One that others have trained alone began here when the next one did.
        """
        first = min([now, *(then for one, then in self._counted.items() if one >= epoch)])
        self._counted = {one: then for one, then in self._counted.items() if one < epoch} | {epoch: first}
        return first


class ModelLearner:
    """Every rank trains on its own, and ranks average their models or the changes of their models.

    The result is a weighted mean of the models so far (`descent.blend`), which has less noise than the last of them.

    "reweighted": an example counts as many times as there are ranks, so each rank goes as far as one that has all rows
    (Zhang and Jordan, "Splash", 2015). With Bottou's step sizes, that is a first step as many times as large.
    """

    def __init__(
        self, problem: Problem, data: Examples, params: Params, steps: Sequence[float], sharing: Sharing,
        average: str = "model", state: State | None = None, classes: type[Classes] = OneVsRest, name: str | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, steps[0]
        self._weight = size() if average == "reweighted" else 1
        self._params, self._steps = params, steps
        self.model: Params = params.copy()
        self.trained, self.blended = 0.0, 0
        """The examples that this rank has trained on, and the models that `model` is a mean of."""
        self._starts = Starts()
        self._kind, self.classes = classes, classes(problem, data, np.atleast_2d(params).shape)
        if state:
            self._params[:], self.model[:] = state["params"], state["model"]
            self.trained, self.blended = float(state["trained"]), int(state["blended"])
        self._connect(sharing, average, name)
        if state and _OWN in state:
            self._resume(state[_OWN])

    def _connect(self, sharing: Sharing, average: str, name: str | None) -> None:
        self._alone = average == "none" or size() == 1
        how = "delta" if average == "delta" else "model"
        self._replica = Replica(
            self._params, every=sharing.every, average=how, graph=sharing.graph, sync=sharing.sync, check_finite=True,
            name=name,
        )  # fmt: skip
        self.vectors = self._replica.vectors

    def learn(self, order: Order) -> None:
        """Train this rank's model on the examples of the rows in `order`. Local."""
        params, steps = np.atleast_2d(self._params), [self._weight * step for step in self._steps]
        self.classes.train(self._problem, order, params, steps, self.trained)
        self.trained += len(order)
        self._note(order)
        if not self.blended:
            self.model[...] = self._params

    def exchange(self, count: int = 1) -> None:
        """Exchange, if that is due, and take the model into the mean. `count`: what the exchanges are counted by."""
        self._exchange(count)
        self.blended += 1
        for average, params in zip(np.atleast_2d(self.model), np.atleast_2d(self._params), strict=True):
            descent.blend(average, params, self.blended)

    def take(self, data: Examples) -> None:
        """Replace the examples by `data`. Local."""
        self.classes = self._kind(self._problem, data, np.atleast_2d(self._params).shape)

    def begin_epoch(self, epoch: int) -> None:
        """Take the counts of examples and models that epoch number `epoch` began with first. Local."""
        self.trained, self.blended = self._starts.of(epoch, (self.trained, self.blended))

    def _note(self, order: Order) -> None:
        """Note which weights the examples of `order` touch. Only sparse vectors need it."""

    def _exchange(self, count: int) -> None:
        if not self._alone:
            self._replica.step(count)

    def finish(self, before: float = 0.0) -> None:
        """Let the model be the mean over the ranks that have trained. `before`: the examples trained on before."""
        self._leave()
        common_mean([self.model], counts=self.trained > before, else_all=True)
        self._params[...] = self.model

    def _leave(self) -> None:
        self._replica.close()

    def state(self) -> State:
        """Return the parameters, their mean, and the counts: views. Local."""
        return {
            "params": self._params, "model": self.model, "trained": self.trained, "blended": self.blended
        }  # fmt: skip

    def own(self) -> State:
        """Return that, and the state of the Replica: views. Collective."""
        return {**self.state(), _OWN: self._replica.state_dict()}

    def _resume(self, own: State) -> None:
        """Go on from what `own` returned beside the state. Collective."""
        self._replica.load_state_dict(own)

    def go_on_from(self, state: State) -> None:
        """Take the mean, the first step and the counts of `state`; the Replica has the parameters. Local."""
        self._eta0, self.model[:] = float(state["first_step"]), state["model"]
        self._steps = [self._eta0]
        self.trained, self.blended = float(state["trained"]), int(state["blended"])


class SparseModelLearner(ModelLearner):
    """A ModelLearner that sends only the weights of features in the rows since the last exchange.

    Shrinking changes all weights, but by the same factor on all ranks.
    """

    def _connect(self, sharing: Sharing, average: str, name: str | None) -> None:
        self._delta = average == "delta"
        self._rows = Touched(self._data, len(self._params) - 1, self._problem.intercept)
        self._base, self._exchanged = self._params.copy(), self.trained
        carried = np.zeros_like(self._params) if self._delta else self._params
        self._vector = vector(
            carried, kind="sparse", track=False, graph=sharing.graph, sync=sharing.sync, depth=DEPTH, check_finite=True,
            name=name,
        )  # fmt: skip
        self.vectors = [self._vector]

    def take(self, data: Examples) -> None:
        """Replace the examples by `data`, and find their features anew. Local."""
        super().take(data)
        self._rows.follow(data)

    def _note(self, order: Order) -> None:
        self._rows.note(order)

    def _exchange(self, count: int) -> None:
        rows = self._rows.take()
        first, now = (descent.step_size(self._eta0, self._problem.l2, t) for t in (self._exchanged, self.trained))
        self._base[:-1] *= np.float32(now / first)  # training has shrunk the untouched weights as much
        self._exchanged = self.trained
        if not self._delta:
            self._vector.scatter(rows)
            self._vector.gather(self._mean)
            self._base[:] = self._params
            return
        changes = self._vector.array
        changes[:] = 0
        changes[rows] = self._params[rows] - self._base[rows]
        self._vector.scatter(rows)
        self._vector.gather(SUM)
        self._params[rows] = self._base[rows]
        self._params += changes / np.float32(1 + self._vector.in_degree)
        self._base[:] = self._params

    def _mean(self, own: Params, updates: list[Update]) -> None:
        """own <- the mean of the models. A row that a sender left out counts as it was after the last exchange.

        AVG is the mean over the senders of a row. These are few, and each would move the row too far.
        """
        for update in updates:
            own += self._base
            own[update.rows] += update.values - self._base[update.rows]
        own /= np.float32(1 + len(updates))

    def own(self) -> State:
        """Return the state, what has changed since the last exchange, and the steps of the vector: views. Local."""
        since = {"base": self._base, "touched": self._rows.marks, "exchanged": self._exchanged}
        return {**self.state(), _OWN: {**since, "steps": self._vector.steps_of_all_jobs}}

    def _resume(self, own: State) -> None:
        self._base[:], self._rows.marks[:], self._exchanged = own["base"], own["touched"], float(own["exchanged"])
        self._vector.begin_after(int(own["steps"]))

    def go_on_from(self, state: State) -> None:
        """Begin at the parameters of `state`, too, as if they had just been exchanged. Local."""
        super().go_on_from(state)
        self._params[:] = self._base[:] = state["params"]
        self._exchanged = self.trained

    def _leave(self) -> None:
        self._vector.close()


class GradientLearner:
    """Ranks average the mean subgradients of their next examples at the same weights, and each takes one step."""

    kind = "dense"

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, sharing: Sharing,
        state: State | None = None,
    ) -> None:  # fmt: skip
        self._problem, self._data, self._eta0 = problem, data, eta0
        self._trained, self._starts = 0, Starts()
        self.model: Params = np.zeros(n_features + 1, np.float32)
        if state:
            self.model[:], self._trained = state["model"], int(state["trained"])
        self._vector = vector(
            n_features + 1, kind=self.kind, graph=sharing.graph, sync=sharing.sync, check_finite=True
        )
        if state and _OWN in state:
            self._vector.begin_after(int(state[_OWN]["steps"]))
        self.vectors = [self._vector]

    def take(self, data: Examples) -> None:
        """Replace the examples by `data`. Local."""
        self._data = data

    def begin_epoch(self, epoch: int) -> None:
        """Take the count of examples that epoch number `epoch` began with first. Local."""
        self._trained = self._starts.of(epoch, self._trained)

    def learn(self, order: Order) -> None:
        """Take one step by the mean gradient of all ranks, of which `order` gives this rank's. One-sided."""
        gradient = self._vector.array
        descent.subgradient(self._problem, self._data, order, self.model, gradient)
        self._average(order, gradient)
        step = descent.gradient_step(self._eta0, self._problem.l2, self._trained, len(order))
        self.model -= np.float32(step) * gradient
        self._trained += len(order)

    def _average(self, order: Order, gradient: Params) -> None:
        self._vector.scatter()
        self._vector.gather(MEAN)

    def exchange(self) -> None:
        """Gradients have been exchanged."""

    def finish(self) -> None:
        """Make the model the mean over all ranks. Collective."""
        self._vector.close()
        common_mean([self.model])

    def state(self) -> State:
        """Return the model, a view, and the count of examples. Local."""
        return {"model": self.model, "trained": self._trained}

    def own(self) -> State:
        """Return that, and the steps of the vector. Local."""
        return {**self.state(), _OWN: {"steps": self._vector.steps_of_all_jobs}}

    def go_on_from(self, state: State) -> None:
        """Take the first step, the model and the count of `state`. Local."""
        self._eta0, self.model[:], self._trained = float(state["first_step"]), state["model"], int(state["trained"])


class SparseGradientLearner(GradientLearner):
    """A GradientLearner that sends only the gradient of the loss. Every rank computes that of the penalty itself."""

    kind = "sparse"

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, eta0: float, sharing: Sharing,
        state: State | None = None,
    ) -> None:  # fmt: skip
        super().__init__(problem, data, n_features, eta0, sharing, state)
        self._rows = Touched(data, n_features, problem.intercept)

    def take(self, data: Examples) -> None:
        """Replace the examples by `data`, and find their features anew. Local."""
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


Learner = ModelLearner | GradientLearner
"""A way to train together."""
