"""Seconds until several ranks are as good as one rank in the end, beside those of that rank."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import Any

from bench.harness import jobs
from bench.harness.timing import ratio, turns
from bench.papers.malt.workloads import Workload

RANKS = 2


def compared(workload: Workload, rounds: int) -> dict[str, Any]:
    """Seconds and epochs of one rank and of RANKS, which take turns, to the measure of one rank at its end, nearly.

    Each round has a seed of its own. Infinity: the target was not reached.
    """
    made = turns({ranks: partial(workload.report, ranks) for ranks in (1, RANKS)}, rounds)
    targets = [workload.close * one["epochs"][-1][workload.measure] for one in made[1]]
    seconds, epochs = (
        {ranks: [float(jobs.first(one["epochs"], workload.measure, target).get(what, math.inf))
                 for one, target in zip(some, targets, strict=True)] for ranks, some in made.items()}
        for what in ("seconds", "epoch")
    )  # fmt: skip
    ends = {ranks: [one["epochs"][-1] for one in some] for ranks, some in made.items()}
    rates = {ranks: [one["examples"] / one["seconds"] for one in some] for ranks, some in ends.items()}
    return {
        "name": workload.name, "measure": workload.measure, "close": workload.close,
        "target": statistics.median(targets),
        "one": seconds[1], "several": seconds[RANKS], "ratio": ratio(seconds[1], seconds[RANKS]),
        "epochs": [statistics.median(epochs[ranks]) for ranks in (1, RANKS)], "rate": ratio(rates[RANKS], rates[1]),
    }  # fmt: skip
