"""Virtual seconds to the end of one rank where each rank has a host of its own: simulated ranks on a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import malt
from bench.harness.document import say
from bench.papers.malt import simulated
from bench.papers.malt.workloads import Workload
from malt.commands.plan.losses import Charge
from malt.commands.plan.measuring import merge_s
from malt.session.session import world

NETWORK = "InfiniBand, 40 Gbit/s"
"""The paper's."""
LATENCY_S, BANDWIDTH = 1.5e-6, 5e9
RANKS = (2, 5, 10, 20)
GRAPHS = ("all", "halton")
EVERY = 1000
"""Rows of a rank between two exchanges. The paper: 1,000 to 5,000."""
LINEAR = ("alpha", "DNA")
"""What is compared beside RCV1: for webspam queues between 20 ranks would take gigabytes."""


def compared(workload: Workload) -> dict[str, Any]:
    """What 1 and each number of RANKS take to the end of one rank, nearly. Starts a job.

    "one": seconds and epochs. "graphs": these and the share of messages that have left, by graph. A rank computes as
    long for a row as that job on one core of this machine, and merges a message as long as an addition takes here: the
    least of some.
    """
    alone = workload.report(1, 0)["epochs"]
    totals = [(0.0, 0), *((epoch["seconds"], epoch["examples"]) for epoch in alone)]
    row_s = min((after[0] - before[0]) / (after[1] - before[1]) for before, after in pairwise(totals))
    added_s = merge_s(4 * workload.weights)
    target = workload.close * alone[-1][workload.measure]
    graphs: dict[str, list[Any]] = {}
    for graph in GRAPHS:
        say(f"{workload.name}: up to {RANKS[-1]} simulated hosts, graph {graph}")
        found = [several(workload, graph, ranks, (row_s, added_s)) for ranks in RANKS]
        graphs[graph] = [[*reached(one["epochs"], target), one["left"]] for one in found]
    one = reached([[epoch["examples"] * row_s, epoch[workload.measure]] for epoch in alone], target)
    return {"row_s": row_s, "merge_s": added_s, "one": one, "graphs": graphs}


def several(
    workload: Workload, graph: str, ranks: int, pace: tuple[float, float],
    link: tuple[float, float] = (LATENCY_S, BANDWIDTH),
) -> dict[str, Any]:  # fmt: skip
    """What so many ranks reach, and when. `pace`: seconds of a row and of a merge. `link`: as of `malt.Network`. Local.

    "epochs": virtual seconds and the measure at the end of each. "left": the share of the models handed over that have
    left, and were not superseded before.
    """
    taken = EVERY * pace[0] + len(malt.graph(graph, ranks).sources(0)) * pace[1]
    words = ("--graph", graph, "--sync", "asp", "--exchange-every", EVERY, "--epochs", workload.epochs[1])
    made = simulated.report(workload, ranks, words, malt.Network(*link), lambda: charge(taken))["epochs"]
    left = made[-1]["bytes_sent"] / made[-1]["bytes_dense"]
    return {"epochs": [[epoch["seconds"], epoch[workload.measure]] for epoch in made], "left": left}


def reached(curve: Sequence[Sequence[float]], target: float) -> list[float]:
    """Seconds and epochs until the measure is `target` or less; infinity: it never is. Pure."""
    epochs = ([seconds, epoch] for epoch, (seconds, measured) in enumerate(curve, 1) if measured <= target)
    return next(epochs, [math.inf, math.inf])


def charge(seconds: float) -> None:
    """Let so much virtual time pass before each exchange of this simulated rank. Local."""
    world().meter = Charge(seconds)
