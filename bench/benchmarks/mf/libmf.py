"""LIBMF: its best error, its best setting, and the time that it takes."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from typing import Any

import numpy as np

from bench.benchmarks.mf.ratings import RANK, Setting, Source, triples

THREADS = 2
STEPS, L2S, ITERATIONS = (0.05, 0.1), (0.05, 0.1, 0.3), (1, 2, 3, 5, 8, 12, 20, 30)
"""The settings that it is tried with."""
QUICK = [Setting(0.1, 0.1, count) for count in (5, 8)]
SLACK = 1.001
"""The target is its best test error times this, so that it need not train to its last digit."""


def load() -> Any:
    """The module of LIBMF, or None where it is not installed."""
    with contextlib.redirect_stdout(io.StringIO()), np.testing.suppress_warnings() as ignore:
        ignore.filter(SyntaxWarning)
        try:
            from libmf import mf
        except ImportError:
            return None
    return mf


class Libmf:
    """LIBMF on one source of ratings, with THREADS threads."""

    def __init__(self, module: Any, source: Source, quick: bool) -> None:
        self._module = module
        self.train, self._test = triples(source.train), triples(source.test)
        every = QUICK if quick else [Setting(*one) for one in itertools.product(STEPS, L2S, ITERATIONS)]
        errors = {setting: self._error(self._fitted(setting)) for setting in every}
        self.target = SLACK * min(errors.values())
        """The test RMSE to reach."""
        reached = [setting for setting, error in errors.items() if error <= self.target]
        self.best = min(reached, key=lambda setting: (setting.epochs, errors[setting]))
        """The setting that reaches it in the fewest iterations. All settings take the same time for one."""

    def iteration_s(self) -> float:
        """Seconds of one iteration, without the set-up."""
        taken = []
        for iterations in (2, 12):
            start = time.perf_counter()
            self._fitted(self.best._replace(epochs=iterations))
            taken.append(time.perf_counter() - start)
        return max((taken[1] - taken[0]) / 10, 1e-9)

    def _fitted(self, setting: Setting) -> Any:
        model = self._module.MF(
            k=RANK, nr_threads=THREADS, nr_bins=26, nr_iters=setting.epochs, eta=setting.step,
            lambda_p1=0, lambda_q1=0, lambda_p2=setting.l2, lambda_q2=setting.l2, quiet=True,
        )  # fmt: skip
        model.fit(self.train)
        return model

    def _error(self, model: Any) -> float:
        """The test RMSE, computed from the factors. The predict() of the package gives other numbers."""
        P, Q = model.p_factors(), model.q_factors()
        train, test = self.train, self._test
        users, items = test[:, 0].astype(int), test[:, 1].astype(int)
        known = (users < len(P)) & (items < len(Q))
        predicted = np.full(len(test), np.nan)
        predicted[known] = np.einsum("ij,ij->i", P[users[known]], Q[items[known]])
        predicted = np.where(np.isnan(predicted), train[:, 2].mean(), predicted)
        predicted = np.clip(predicted, train[:, 2].min(), train[:, 2].max())
        return float(np.sqrt(np.mean((predicted - test[:, 2]) ** 2)))
