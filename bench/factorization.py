"""Matrix factorization against LIBMF, two threads against two ranks, on epinions and jester."""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.rows import Row, timed
from malt.data.textfile import read_chunks

DATA = Path(__file__).parents[2] / "shared" / "data"
RANK, THREADS, STEP = 16, 2, 0.1
L2S, ITERATIONS = (0.05, 0.1, 0.3), (1, 2, 3, 5, 8, 12, 20)
"""What LIBMF is tried with: its best test error is the one to reach."""


def rows(quick: bool) -> list[Row]:
    """Time to LIBMF's best test error, and ratings a second."""
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
    target, l2, iterations = min(
        (_error(_fitted(peer, train, l2, count), train, test), l2, count)
        for l2 in (L2S[1:2] if quick else L2S)
        for count in (ITERATIONS[3:5] if quick else ITERATIONS)
    )
    ours, theirs, rates, their_rates = [], [], [], []
    best = np.inf
    for seed in range(1 if quick else 5):
        report = _report(name, seed)
        reached = [epoch["seconds"] for epoch in report["epochs"] if epoch["test_rmse"] <= target]
        best = min(best, *(epoch["test_rmse"] for epoch in report["epochs"]))
        ours.append(reached[0] if reached else np.inf)
        rates.append(report["epochs"][-1]["examples"] / report["epochs"][-1]["seconds"])
        iteration_s = _iteration_s(peer, train, l2)
        theirs.append(iterations * iteration_s)
        their_rates.append(len(train) / iteration_s)
    told = f"LIBMF's best, l2 {l2:g}, {iterations} iterations; ours goes down to {best:.4f}"
    speed = statistics.median(mine / other for mine, other in zip(rates, their_rates, strict=True))
    return [
        timed(f"{what}: time to test RMSE {target:.4f}", "LIBMF, 2 threads", 3, ours, theirs, told),
        Row(f"{what}: ratings/s", "LIBMF, 2 threads", speed, 3, statistics.median(rates),
            statistics.median(their_rates), "1/s"),
    ]  # fmt: skip


def _triples(path: Path) -> np.ndarray[Any, Any]:
    """(user, item, rating), users and items counted from 0."""
    text = b"".join(read_chunks(str(path)))
    table = np.array(text.split(), np.float64).reshape(-1, 3)
    table[:, :2] -= 1
    return table


def _fitted(peer: Any, train: Any, l2: float, iterations: int) -> Any:
    model = peer.MF(
        k=RANK, nr_threads=THREADS, nr_bins=26, nr_iters=iterations, eta=STEP,
        lambda_p1=0, lambda_q1=0, lambda_p2=l2, lambda_q2=l2, quiet=True,
    )  # fmt: skip
    model.fit(train)
    return model


def _error(model: Any, train: Any, test: Any) -> float:
    """The test RMSE, of its factors (predict() of the package gives other numbers than they do)."""
    P, Q = model.p_factors(), model.q_factors()
    users, items = test[:, 0].astype(int), test[:, 1].astype(int)
    known = (users < len(P)) & (items < len(Q))
    told = np.full(len(test), np.nan)
    told[known] = np.einsum("ij,ij->i", P[users[known]], Q[items[known]])
    told = np.where(np.isnan(told), train[:, 2].mean(), told)
    told = np.clip(told, train[:, 2].min(), train[:, 2].max())
    return float(np.sqrt(np.mean((told - test[:, 2]) ** 2)))


def _iteration_s(peer: Any, train: Any, l2: float) -> float:
    """Seconds of one of its iterations, without what it takes to set up."""
    taken = []
    for iterations in (2, 12):
        start = time.perf_counter()
        _fitted(peer, train, l2, iterations)
        taken.append(time.perf_counter() - start)
    return max((taken[1] - taken[0]) / 10, 1e-9)


def _report(name: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        train, test = (str(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
        words = ["-m", "apps.mf", train, "--test", test, "--rank", str(RANK), "--seed", str(seed), "--json", str(file)]
        subprocess.run(
            [sys.executable, "-m", "malt", "run", "-n", "2", *words], check=True, stdout=subprocess.DEVNULL
        )  # fmt: skip
        report: dict[str, Any] = json.loads(file.read_text())
        return report
