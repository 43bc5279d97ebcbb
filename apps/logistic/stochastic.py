"""Optimizers that take a step, or many, for each block of rows: sgd with means, Adam, FTRL-proximal."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

import malt
from apps.harness import Array, of_lowest
from apps.logistic.options import STEPS
from apps.logistic.rows import Rows
from malt.models import linear
from malt.models.linear import NUMBERS, Block, Objective, Weights

BETA: Final = 1e-6
"""FTRL's beta, which is for gradients of size 1: those of means over a block are smaller, and rates follow them."""
MOST_TRIED_CLASSES: Final = 9
"""The most classes on which step sizes are tried."""


def learner(
    weights: Weights, objective: Objective, rows: Rows, options: Namespace, state: Mapping[str, Any]
) -> Learner:  # fmt: skip
    """The learner for the options. It resumes from `state`. Collective. ValueError: as linear.first_step."""
    if options.optimizer in STEPS:
        return Stepwise(weights, options, objective, state)
    step = float(state["first_step"]) if state else options.step or _first_step(rows, options)
    return Averaged(weights, options, step, state)


def _first_step(rows: Rows, options: Namespace) -> float:
    """The first step size of sgd, which all ranks find on the same rows; that of the lowest counts. Collective.

    Where there are several classes it is the median of those of some of them, each against the rest.
    """
    ranks, count, classes = min(malt.size(), linear.MAX_TRIAL_RANKS), len(rows.labels), rows.classes.columns
    sample = rows.chosen(np.random.default_rng(options.seed).permutation(count)[: ranks * linear.STEP_SAMPLE])
    problem = linear.Problem(options.loss, options.l2, options.intercept)
    some = range(min(classes, MOST_TRIED_CLASSES))
    tried = [sample] if classes == 1 else [linear.one_against_rest(sample, one) for one in some]
    found = [linear.first_step(problem, one, rows.n_features, ranks) for one in tried]
    return float(np.quantile(of_lowest(found), 0.5, method="lower"))


class Averaged:
    """Each rank trains on its block, one example at a time, and w becomes the mean of what they have learned.

    `point` is a weighted mean of all w so far (`linear.blend`).
    """

    def __init__(self, weights: Weights, options: Namespace, eta0: float, state: Mapping[str, Any]) -> None:
        self._weights, self._eta0 = weights, eta0
        self._problem = linear.Problem(options.loss, options.l2, options.intercept)
        self._kind = linear.KINDS[options.multiclass == "softmax"]
        self.point = weights.another(state.get("point"))
        self._trained, self._count = float(state.get("trained", 0)), int(state.get("blended", 0))

    def learn(self, block: Block, rows: float, ranks: int) -> None:
        """Train on `block`, and add the mean of the changes of all ranks. Collective.

        The change of a rank is counted from w as it has shrunk on all of them. So rows that a rank has not seen need no
        exchange.
        """
        weights, share = self._weights, rows / ranks
        base = weights.seen(weights.w, block)
        trained = self._trained_on(block, base)
        shrink = [linear.step_size(self._eta0, self._problem.l2, self._trained + more) for more in (0, share)]
        own, kept = weights.memory(block), base * (shrink[1] / shrink[0])
        kept[-1] = base[-1]
        if len(block.data.labels):
            own[...] = (trained - kept) / ranks
        changes, _ = weights.added(own, block, [0.0] * NUMBERS, 0.0)
        w, mean = weights.local(weights.w), weights.local(self.point)
        w[weights.penalized] *= shrink[1] / shrink[0]
        w += weights.local(changes)
        self._trained, self._count = self._trained + share, self._count + 1
        mean += (linear.TAIL + 1) / (linear.TAIL + self._count) * (w - mean)

    def _trained_on(self, block: Block, base: Array) -> Array:
        columns = np.array(np.atleast_2d(base.T), np.float32, order="C")
        order = np.arange(len(block.data.labels), dtype=np.int32)
        classes = self._kind(self._problem, block.data, columns.shape)
        classes.train(self._problem, order, columns, [self._eta0] * len(columns), self._trained)
        return columns.T.reshape(base.shape)

    def state(self) -> Mapping[str, Any]:
        return {"point": self.point, "first_step": self._eta0, "trained": self._trained, "blended": self._count}


class Stepwise:
    """The gradient of each block makes a step: Adam, with that of the l2 penalty, or FTRL, which has the penalties."""

    def __init__(self, weights: Weights, options: Namespace, objective: Objective, state: Mapping[str, Any]) -> None:
        self._weights, self._options, self._objective = weights, options, objective
        self.point = weights.w
        self._states = [weights.another(state.get(name)) for name in ("first", "second")]
        self._steps = int(state.get("steps", 0))
        self._adam = malt.optim.adam(options.step, steps=self._steps)

    def learn(self, block: Block, rows: float, ranks: int) -> None:
        weights = self._weights
        gradient = self._objective.found(weights.w, block, rows).gradient
        self._steps += 1
        if self._options.optimizer == "adam":
            self._objective.penalize(weights.w, gradient)
            weights.update(self._adam, weights.w, *self._states, gradient)
        else:
            weights.update(self._ftrl, weights.w, *self._states, gradient)

    def _ftrl(self, *parts: Array) -> None:
        """The objective has the penalties once for the mean loss, so each step of t adds them once.

        McMahan, Follow-the-regularized-leader and mirror descent, AISTATS 2011, section 3.
        """
        alpha, t, end = self._options.step, self._steps, self._weights.penalized.stop
        malt.optim.ftrl(alpha, BETA, self._options.l1 * t, self._options.l2 * t)(*(part[:end] for part in parts))
        malt.optim.ftrl(alpha, BETA)(*(part[end:] for part in parts))

    def state(self) -> Mapping[str, Any]:
        return {"first": self._states[0], "second": self._states[1], "steps": self._steps}


Learner = Averaged | Stepwise
"""A way to learn from blocks of rows. All ranks make as many calls. `point`: the weights that are measured."""
