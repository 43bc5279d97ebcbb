"""Seconds until several ranks are as good as one rank in the end, beside those of that rank."""

from __future__ import annotations

import math
import statistics
from typing import Any

from bench import jobs
from bench.paper.workloads import Workload
from bench.timing import ratio

RANKS = 2


def compared(workload: Workload, rounds: int) -> dict[str, Any]:
    """Seconds and epochs of one rank and of RANKS, which take turns, to the measure of one rank at its end, nearly.

    Each round has a seed of its own. Infinity: the target was not reached.
    """
    seconds: dict[int, list[float]] = {1: [], RANKS: []}
    epochs: dict[int, list[float]] = {1: [], RANKS: []}
    rates: dict[int, list[float]] = {1: [], RANKS: []}
    targets = []
    for seed in range(rounds):
        turn = (1, RANKS) if seed % 2 == 0 else (RANKS, 1)
        made = {ranks: workload.report(ranks, seed) for ranks in turn}
        targets.append(workload.close * made[1]["epochs"][-1][workload.measure])
        for ranks, one in made.items():
            seconds[ranks].append(jobs.seconds_to(targets[-1], workload.measure, one))
            epochs[ranks].append(epochs_to(targets[-1], workload.measure, one))
            rates[ranks].append(one["epochs"][-1]["examples"] / one["epochs"][-1]["seconds"])
    return {
        "name": workload.name, "measure": workload.measure, "close": workload.close,
        "target": statistics.median(targets),
        "one": seconds[1], "several": seconds[RANKS], "ratio": ratio(seconds[1], seconds[RANKS]),
        "epochs": [statistics.median(epochs[ranks]) for ranks in (1, RANKS)], "rate": ratio(rates[RANKS], rates[1]),
    }  # fmt: skip


def epochs_to(target: float, measure: str, made: jobs.Report) -> float:
    """Epochs until one ends with `measure` at the target or below; infinity if none does. Pure."""
    return next((epoch["epoch"] for epoch in made["epochs"] if epoch[measure] <= target), math.inf)
