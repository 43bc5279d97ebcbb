"""Measures how many exchanges ranks of apps.svm need: dual coordinate ascent against means of models."""

from __future__ import annotations

import math

from bench.benchmarks.rows import Row, timed
from bench.benchmarks.svm.task import L2
from bench.harness import jobs
from bench.harness.datasets import RCV1
from bench.harness.document import reached

RANKS, QUICK_RANKS = (2, 4), (2,)
ABOVE = 1.001
"""The objective to reach, in optima."""
DUAL_EVERY, QUICK_DUAL_EVERY = (1000, 3000, 10**6), (10**6,)
MODEL_EVERY, QUICK_MODEL_EVERY = (1000, 2000, 5000, 10_000, 20_000, 50_000), (10_000, 20_000)
"""Examples of a rank between two exchanges. With dual there is one an epoch, at least."""
EPOCHS = 300
"""More than any training needs that reaches the objective."""


def rows(quick: bool) -> list[Row]:
    """A row for each number of ranks, each side with its best interval. The note has all intervals."""
    what = "SVM on rcv1-ccat, exchanges to 0.1 % above the optimum"
    target = ABOVE * _report(1, "--optimizer", "dual", "--gap", 1e-6)["final"]["objective"]
    dual_every, model_every = (QUICK_DUAL_EVERY, QUICK_MODEL_EVERY) if quick else (DUAL_EVERY, MODEL_EVERY)
    made = []
    for ranks in QUICK_RANKS if quick else RANKS:
        dual = {every: _needed(ranks, target, every, "--optimizer", "dual") for every in dual_every}
        model = {every: _needed(ranks, target, every, "--sync", "bsp", "--epochs", EPOCHS) for every in model_every}
        note = f"dual: {_listed(dual)}; means: {_listed(model)}"
        ours, theirs = [min(dual.values())], [min(model.values())]
        made.append(timed(f"{what}, dual, {ranks} ranks", "means of models", ours, theirs, note, "exchanges"))
    return made


def _report(ranks: int, *options: object) -> jobs.Report:
    return jobs.report(ranks, "apps.svm", RCV1, "--l2", L2, "--no-intercept", *options)


def _needed(ranks: int, target: float, every: int, *options: object) -> float:
    """The exchanges of a rank until an epoch ends at the target; infinity if none does."""
    epochs = _report(ranks, "--exchange-every", every, *options)["epochs"]
    return float(jobs.first(epochs, "objective", target).get("merged", math.inf)) / (ranks * (ranks - 1))


def _listed(found: dict[int, float]) -> str:
    return ", ".join(f"{reached(count, '.0f')} every {every:,}" for every, count in found.items())
