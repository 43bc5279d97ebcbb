"""Optimizers of the whole gradient: L-BFGS, OWL-QN. An iteration is an epoch of the harness."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import malt
from apps.logistic.rows import Dealt
from malt.models.linear import Objective, Weights


class Batch:
    """A minimization over the rows of all ranks. `first_norm`: that of a run which this one resumes, else 0."""

    def __init__(
        self, weights: Weights, objective: Objective, dealt: Dealt, options: Namespace, first_norm: float
    ) -> None:  # fmt: skip
        self._weights, self._objective, self._dealt, self._options = weights, objective, dealt, options
        self.first_norm = float(first_norm)
        """The norm of the gradient at zeros, with which --tolerance compares."""
        self.value = math.nan
        """The objective after the last iteration; NaN before there is one."""
        self.loss: float | None = None
        """The same; None before there is one."""
        self.has_converged, self.reason = False, ""
        self._last: tuple[float, Any] = (math.nan, None)
        self._is_known = False
        """Whether `_last` is what the function is at w."""

    def begin(self) -> None:
        """Find the norm of the gradient at w, which is zeros. Collective."""
        self.first_norm = self._minimize(max_iterations=0).gradient_norm
        self._is_known = True

    def forget(self) -> None:
        """Note that w has changed since `begin`. Local."""
        self._is_known = False

    def minimize(self, iterations: int, ended: Callable[[], bool]) -> None:
        """Make at most so many iterations, until the gradient is small enough, or ended() says so. Collective.

        It is called after each of them, and returns the same on all ranks.
        """

        def after(result: malt.optim.Result) -> bool:
            self.value = self.loss = result.value
            self.has_converged = result.gradient_norm <= self._options.gradient_tolerance * self.first_norm
            return ended() and self.has_converged  # else the optimizer counts to the same end

        result = self._minimize(tolerance=0.0, max_iterations=iterations, callback=after)
        self.has_converged = self.has_converged or result.reason == "converged"
        self.reason = result.reason

    def _minimize(self, **options: Any) -> malt.optim.Result:
        if self._options.optimizer == "lbfgs":
            return malt.optim.lbfgs(self._function, self._weights.w, **options)
        l1 = np.zeros_like(self._weights.w)
        self._weights.local(l1)[self._weights.penalized] = self._options.l1
        return malt.optim.owlqn(self._function, self._weights.w, l1=l1, **options)

    def _function(self, w: Any) -> tuple[float, Any]:
        """The objective without the l1 penalty, which is the optimizer's, and its gradient. Collective."""
        if not self._is_known:
            found = self._dealt.whole(partial(self._objective.found, w, rows=self._dealt.count, l1=False))
            self._objective.penalize(w, found.gradient)
            self._last = (found.value, found.gradient)
        self._is_known = False
        return self._last
