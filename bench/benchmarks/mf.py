"""Measures apps.mf against LIBMF: two ranks against two threads."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.benchmarks.rows import Row, missing, rated, timed
from bench.harness import jobs
from bench.harness.datasets import DATA
from bench.harness.timing import turns
from malt.data.text.text_file import read_chunks

RANK, THREADS = 16, 2


class Setting(NamedTuple):
    """The options of a training."""

    step: float
    l2: float
    epochs: int

    def __str__(self) -> str:
        return f"step {self.step:g}, l2 {self.l2:g}, {self.epochs} epochs"


class Source(NamedTuple):
    """Ratings to train on and to test on: a data set of ../shared/data, which may not be there."""

    name: str

    @property
    def train(self) -> Path:
        return DATA / self.name / "train.txt.xz"

    @property
    def test(self) -> Path:
        return DATA / self.name / "test.txt.xz"

    def report(self, ranks: int, setting: Setting, seed: int) -> jobs.Report:
        """The report of apps.mf on `ranks` ranks."""
        chosen = ("--step", setting.step, "--l2", setting.l2, "--epochs", setting.epochs)
        return jobs.report(
            ranks, "apps.mf", self.train, "--test", self.test, "--rank", RANK, "--seed", seed, *chosen
        )  # fmt: skip


STEPS, L2S, ITERATIONS = (0.05, 0.1), (0.05, 0.1, 0.3), (1, 2, 3, 5, 8, 12, 20, 30)
"""The settings that LIBMF is tried with."""
OUR_STEPS, OUR_L2S, OUR_EPOCHS = (0.04, 0.08), (0.02, 0.05), (4, 8, 20)
"""Those of apps.mf. The one that reaches the target first is timed."""
QUICK = [Setting(0.1, 0.3, count) for count in (20, 30)]
OUR_QUICK = [Setting(0.04, 0.02, 8), Setting(0.08, 0.02, 4)]
SLACK = 1.001
"""The target is the best test error of LIBMF times this, so that it need not train to its last digit."""


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


def triples(file: Path) -> np.ndarray[Any, Any]:
    """An array of (user, item, rating) rows, float64, with users and items counted from 0."""
    text = b"".join(read_chunks(str(file)))
    table = np.array(text.split(), np.float64).reshape(-1, 3)
    table[:, :2] -= 1
    return table


def rows(quick: bool) -> list[Row]:
    """Rows of apps.mf against LIBMF. Those that lack their data or their peer are not measured, with a note.

    A quick run leaves epinions out.
    """
    return [row for name in (["jester"] if quick else ["epinions", "jester"]) for row in _compared(Source(name), quick)]


def _compared(source: Source, quick: bool) -> list[Row]:
    """Two rows: time to LIBMF's best test error, and ratings per second."""
    what, against = f"MF on {source.name}, {RANK} factors", f"LIBMF, {THREADS} threads"
    module = load()
    if not source.train.exists():
        return [missing(what, against, f"it needs ../shared/data/{source.name}")]
    if module is None:
        return [missing(what, against, "it is not installed")]
    peer = Libmf(module, source, quick)

    def seconds(report: jobs.Report) -> float:
        return jobs.seconds_to(peer.target, "test_rmse", report)

    ours = OUR_QUICK if quick else [Setting(*one) for one in itertools.product(OUR_STEPS, OUR_L2S, OUR_EPOCHS)]
    best = min(ours, key=lambda setting: seconds(source.report(2, setting, 0)))
    contenders = {"ours": partial(source.report, 2, best), "theirs": lambda _: peer.iteration_s()}
    reports, iterations_s = turns(contenders, 1 if quick else 5).values()
    times, their_times = [seconds(report) for report in reports], [peer.best.epochs * one for one in iterations_s]
    rates, their_rates = (
        [report["final"]["examples_per_s"] for report in reports], [len(peer.train) / one for one in iterations_s]
    )  # fmt: skip
    note = f"LIBMF: {peer.best}; MALT: {best}"
    return [
        timed(f"{what}: time to test RMSE {peer.target:.4f}, 2 ranks", against, times, their_times, note),
        rated(f"{what}: ratings/s, 2 ranks", against, rates, their_rates),
    ]
