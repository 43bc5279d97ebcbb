"""The objective over seconds where a rank is killed, and where it comes back; goodput where ranks are killed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.benchmarks.svm import planted
from bench.harness import jobs
from bench.papers.malt import workloads
from bench.papers.malt.struck import PACE_S

__all__ = ["PACE_S", "curves", "goodput"]
RANKS, PLACES = 4, 200
EVERY = 500
KILLED_IN, EPOCHS = 6, 24
GOODPUT_ROWS = 12_000
RUNS = ("without", "killed", "rejoined")


def curves(rows: int, folder: Path, until_back: bool) -> dict[str, Any]:
    """Seconds and objective of each epoch without a failure, with one, and where the rank comes back; what the reports
    say of the failure.

    `until_back`: the others wait for the rank, which would else come too late on a machine that is busy.
    """
    own = folder / "failure"
    own.mkdir()
    planted.write(workloads.strings(rows, PLACES), own)
    words = (own, "--no-intercept", "--sync", "bsp", "--exchange-every", EVERY, "--epochs", EPOCHS)
    struck, waiting = ("--killed-in", KILLED_IN), ("--until-back",) * until_back
    runs = [jobs.report(RANKS, "bench.papers.malt.struck", *words, *more, options=["--survive", *options])
            for more, options in (((), ()), (struck, ()), ((*struck, *waiting), ("--rejoin",)))]  # fmt: skip
    curves = ([[epoch["seconds"], epoch["objective"]] for epoch in made["epochs"]] for made in runs)
    [lost], [back] = (made["lost_ranks"] for made in runs[1:])
    return {**dict(zip(RUNS, curves, strict=True)), "lost": lost, "back": back, "rows": rows}


def goodput(period_s: float, epochs: int, folder: Path) -> dict[str, Any]:
    """Epochs a second where one of the ranks is killed every `period_s`, and comes back, beside a run without failures.

    Under asp: ranks wait for nobody.
    """
    own = folder / "goodput"
    own.mkdir()
    planted.write(workloads.strings(GOODPUT_ROWS, PLACES), own)
    words = (own, "--no-intercept", "--sync", "asp", "--exchange-every", EVERY)
    found: dict[str, Any] = {"period_s": period_s}
    for name, count, more in (("undisturbed", epochs // 4, ()), ("killed", epochs, ("--killed-every", period_s))):
        made = jobs.report(RANKS, "bench.papers.malt.struck", *words, "--epochs", count, *more,
                           options=["--survive", "--rejoin"])  # fmt: skip
        took = made["final"]["seconds"]
        found[name] = {"epochs": count, "seconds": took,
                       "lost": [rank["rank"] for rank in made["lost_ranks"]]}  # fmt: skip
    rates = [found[name]["epochs"] / found[name]["seconds"] for name in ("killed", "undisturbed")]
    return {**found, "goodput": rates[0] / rates[1]}
