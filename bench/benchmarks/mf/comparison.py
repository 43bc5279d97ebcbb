"""Measures apps.mf against LIBMF, two ranks against two threads; and on film ratings several ranks against one."""

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
DEFAULT = Setting(0.04, 0.05, 20)
"""The setting of apps.mf without options."""
CLOSE = 1.005
"""Several ranks are timed until the test RMSE is that of one rank in the end, times this."""


def several_ranks(quick: bool) -> list[Row]:
    """Rows of apps.mf on several ranks against one, on film ratings."""
    with tempfile.TemporaryDirectory() as folder:
        return _scaling(ratings.film(Path(folder)), 1 if quick else 5)


def against_libmf(quick: bool) -> list[Row]:
    """Rows of apps.mf against LIBMF. Those that lack their data or their peer are not measured, with a note.

    A quick run leaves epinions and jester out.
    """
    with tempfile.TemporaryDirectory() as folder:
        sources = [ratings.film(Path(folder)), *([] if quick else map(ratings.shared, ("epinions", "jester")))]
        return [row for source in sources for row in _against_libmf(source, quick)]


def _scaling(source: Source, rounds: int) -> list[Row]:
    """Rows of 2 and 4 ranks against one: ratings per second, time to nearly the same error, final error."""
    runs = turns({ranks: partial(source.report, ranks, DEFAULT) for ranks in (1, 2, 4)}, rounds)
    rates, errors, times = {}, {}, {}
    for ranks, made in runs.items():
        rates[ranks] = [report["final"]["examples_per_s"] for report in made]
        errors[ranks] = [report["final"]["test_rmse"] for report in made]
        targets = [CLOSE * report["final"]["test_rmse"] for report in runs[1]]
        times[ranks] = [
            jobs.seconds_to(target, "test_rmse", report) for target, report in zip(targets, made, strict=True)
        ]
    what, alone = f"MF on {source.name}, {RANK} factors", "1 rank"
    return [
        rated(f"{what}: ratings/s, 2 ranks", alone, rates[2], rates[1]),
        timed(f"{what}: time to its final test RMSE x {CLOSE}, 2 ranks", alone, times[2], times[1]),
        *(
            timed(f"{what}: final test RMSE, {ranks} ranks", alone, errors[ranks], errors[1], unit="RMSE")
            for ranks in (2, 4)
        ),
    ]


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
