"""Measures apps.mf against LIBMF: two ranks against two threads."""

from __future__ import annotations

import itertools
import tempfile
from functools import partial
from pathlib import Path

from bench.benchmarks.mf import libmf, ratings
from bench.benchmarks.mf.libmf import Libmf
from bench.benchmarks.mf.ratings import RANK, Setting, Source
from bench.benchmarks.rows import Row, missing, rated, timed
from bench.harness import jobs
from bench.harness.timing import turns

STEPS, L2S, EPOCHS = (0.04, 0.08), (0.02, 0.05), (4, 8, 20)
"""The settings that apps.mf is tried with. The one that reaches the target first is timed."""
QUICK = [Setting(0.04, 0.02, 20), Setting(0.08, 0.02, 4)]


def rows(quick: bool) -> list[Row]:
    """Rows of apps.mf against LIBMF. Those that lack their data or their peer are not measured, with a note.

    A quick run leaves epinions and jester out.
    """
    with tempfile.TemporaryDirectory() as folder:
        sources = [ratings.film(Path(folder)), *([] if quick else map(ratings.shared, ("epinions", "jester")))]
        return [row for source in sources for row in _against_libmf(source, quick)]


def _against_libmf(source: Source, quick: bool) -> list[Row]:
    """Two rows: time to LIBMF's best test error, and ratings per second."""
    what, against = f"MF on {source.name}, {RANK} factors", f"LIBMF, {libmf.THREADS} threads"
    module = libmf.load()
    if not source.train.exists():
        return [missing(what, against, f"it needs ../shared/data/{source.name}")]
    if module is None:
        return [missing(what, against, "it is not installed")]
    peer = Libmf(module, source, quick)

    def seconds(report: jobs.Report) -> float:
        return jobs.seconds_to(peer.target, "test_rmse", report)

    ours = QUICK if quick else [Setting(*one) for one in itertools.product(STEPS, L2S, EPOCHS)]
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
