"""Matrix factorization against LIBMF: two ranks against two threads, on epinions and jester."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.rows import Row, timed
from malt.data.textfile import read_chunks

DATA = Path(__file__).parents[2] / "shared" / "data"
RANK, THREADS = 16, 2
STEPS, L2S, ITERATIONS = (0.05, 0.1), (0.05, 0.1, 0.3), (1, 2, 3, 5, 8, 12, 20)
"""The settings that LIBMF is tried with. Its best test error is the target."""
OUR_STEPS, OUR_L2S, OUR_EPOCHS = (0.04, 0.08), (0.02, 0.05), (4, 8, 20)
"""The settings that apps.mf is tried with. The one that reaches the target first is timed."""


class Setting(NamedTuple):
    """The options of a training."""

    step: float
    l2: float
    epochs: int

    def __str__(self) -> str:
        return f"step {self.step:g}, l2 {self.l2:g}, {self.epochs} epochs"


def rows(quick: bool) -> list[Row]:
    """The rows of both data sets: time to LIBMF's best test error, and ratings per second."""
    made = []
    for name in ("epinions", "jester"):
        what = f"MF on {name}, rank {RANK}"
        if not (DATA / name).is_dir():
            made.append(Row(what, "LIBMF", None, 3, note=f"needs ../shared/data/{name}"))
        elif (peer := _libmf()) is None:
            made.append(Row(what, "LIBMF", None, 3, note="not installed"))
        else:
            made += _compared(name, what, peer, quick)
    return made


def _libmf() -> Any:
    with contextlib.redirect_stdout(io.StringIO()), np.testing.suppress_warnings() as ignore:
        ignore.filter(SyntaxWarning)
        try:
            from libmf import mf
        except ImportError:
            return None
    return mf


def _compared(name: str, what: str, peer: Any, quick: bool) -> list[Row]:
    train, test = (_triples(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
    theirs = [Setting(*one) for one in itertools.product(STEPS, L2S, ITERATIONS)]
    ours = [Setting(*one) for one in itertools.product(OUR_STEPS, OUR_L2S, OUR_EPOCHS)]
    if quick:
        theirs, ours = [Setting(0.1, 0.1, count) for count in (5, 8)], [ours[2], ours[6]]
    target, their_best = min((_error(_fitted(peer, train, one), train, test), one) for one in theirs)
    our_best = min((_seconds_to(target, _report(name, one, 0)), one) for one in ours)[1]
    times, their_times, rates, their_rates = [], [], [], []
    for seed in range(1 if quick else 5):
        report = _report(name, our_best, seed)
        times.append(_seconds_to(target, report))
        rates.append(report["epochs"][-1]["examples"] / report["epochs"][-1]["seconds"])
        iteration_s = _iteration_s(peer, train, their_best)
        their_times.append(their_best.epochs * iteration_s)
        their_rates.append(len(train) / iteration_s)
    note = f"LIBMF's best: {their_best}; ours: {our_best}"
    speed = statistics.median(mine / other for mine, other in zip(rates, their_rates, strict=True))
    return [
        timed(f"{what}: time to test RMSE {target:.4f}", "LIBMF, 2 threads", 3, times, their_times, note),
        Row(f"{what}: ratings/s", "LIBMF, 2 threads", speed, 3, statistics.median(rates),
            statistics.median(their_rates), "1/s"),
    ]  # fmt: skip


def _seconds_to(target: float, report: dict[str, Any]) -> float:
    """Seconds of training until an epoch reaches the target error; infinity if none does."""
    return next((epoch["seconds"] for epoch in report["epochs"] if epoch["test_rmse"] <= target), math.inf)


def _triples(path: Path) -> np.ndarray[Any, Any]:
    """An array of (user, item, rating) rows, float64, with users and items counted from 0."""
    text = b"".join(read_chunks(str(path)))
    table = np.array(text.split(), np.float64).reshape(-1, 3)
    table[:, :2] -= 1
    return table


def _fitted(peer: Any, train: Any, setting: Setting) -> Any:
    model = peer.MF(
        k=RANK, nr_threads=THREADS, nr_bins=26, nr_iters=setting.epochs, eta=setting.step,
        lambda_p1=0, lambda_q1=0, lambda_p2=setting.l2, lambda_q2=setting.l2, quiet=True,
    )  # fmt: skip
    model.fit(train)
    return model


def _error(model: Any, train: Any, test: Any) -> float:
    """The test RMSE, computed from the factors. The predict() of the package gives other numbers."""
    P, Q = model.p_factors(), model.q_factors()
    users, items = test[:, 0].astype(int), test[:, 1].astype(int)
    known = (users < len(P)) & (items < len(Q))
    predicted = np.full(len(test), np.nan)
    predicted[known] = np.einsum("ij,ij->i", P[users[known]], Q[items[known]])
    predicted = np.where(np.isnan(predicted), train[:, 2].mean(), predicted)
    predicted = np.clip(predicted, train[:, 2].min(), train[:, 2].max())
    return float(np.sqrt(np.mean((predicted - test[:, 2]) ** 2)))


def _iteration_s(peer: Any, train: Any, setting: Setting) -> float:
    """Seconds of one iteration of LIBMF, without its set-up."""
    taken = []
    for iterations in (2, 12):
        start = time.perf_counter()
        _fitted(peer, train, setting._replace(epochs=iterations))
        taken.append(time.perf_counter() - start)
    return max((taken[1] - taken[0]) / 10, 1e-9)


def _report(name: str, setting: Setting, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        train, test = (str(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
        words = ["-m", "apps.mf", train, "--test", test, "--rank", str(RANK), "--seed", str(seed), "--json", str(file)]
        chosen = ["--step", str(setting.step), "--l2", str(setting.l2), "--epochs", str(setting.epochs)]
        command = [sys.executable, "-m", "malt", "run", "-n", "2", *words, *chosen]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(file.read_text())
        return report
