"""Virtual seconds to the end of one rank where each rank has a host of its own: simulated ranks on a network."""

from __future__ import annotations

from typing import Any

import numpy as np

import malt
from bench import jobs, timing
from bench.paper import simulated, speedup
from bench.paper.workloads import Workload
from malt.commands.plan.losses import Charge
from malt.session.session import world

NETWORK = "InfiniBand, 40 Gbit/s"
"""The paper's."""
LATENCY_S, BANDWIDTH = 1.5e-6, 5e9
RANKS = (2, 5, 10, 20)
GRAPHS = ("all", "halton")
EVERY = 1000
"""Rows of a rank between two exchanges. The paper: 1,000 to 5,000."""
LINEAR = ("RCV1", "alpha", "DNA")
"""What is compared: for webspam queues between 20 ranks would take gigabytes."""
EPOCHS = 30
"""Of several ranks, at most."""
_ADDED = 7
"""Times that merging is timed."""


def compared(workload: Workload) -> dict[str, Any]:
    """Virtual seconds and epochs of 1 and of each number of RANKS to the end of one rank, nearly. Starts a job.

    A rank computes as long for a row as that job on one core of this machine, and merges a message as long as an
    addition takes here. Infinity: the target was not reached.
    """
    alone = workload.report(1, 0)
    last = alone["epochs"][-1]
    row_s, target = last["seconds"] / last["examples"], workload.close * last[workload.measure]
    epochs = speedup.epochs_to(target, workload.measure, alone)
    pace = row_s, addition_s(workload.weights)
    graphs = {graph: [_several(workload, graph, ranks, target, *pace) for ranks in RANKS] for graph in GRAPHS}
    seconds = epochs * last["examples"] / len(alone["epochs"]) * row_s
    return {"name": workload.name, "row_s": row_s, "merge_s": pace[1], "one": [seconds, epochs], "graphs": graphs}


def _several(
    workload: Workload, graph: str, ranks: int, target: float, row_s: float, merge_s: float
) -> list[float]:  # fmt: skip
    """Virtual seconds and epochs of several ranks to the target."""
    taken = EVERY * row_s + len(malt.graph(graph, ranks).sources(0)) * merge_s
    words = ("--graph", graph, "--sync", "asp", "--exchange-every", EVERY, "--epochs", EPOCHS)
    network = malt.Network(LATENCY_S, BANDWIDTH)
    made = simulated.report(workload, ranks, words, network, lambda: charge(taken))
    measure = workload.measure
    return [jobs.seconds_to(target, measure, made), speedup.epochs_to(target, measure, made)]


def charge(seconds: float) -> None:
    """Let so much virtual time pass before each exchange of this simulated rank. Local."""
    world().meter = Charge(seconds)


def addition_s(width: int) -> float:
    """Seconds that adding a message of `width` weights to others takes here: the least of some. Local."""
    own, message = np.ones(width, np.float32), np.ones(width, np.float32)
    taken = timing.alternate({"add": lambda: np.add(own, message, out=own)}, rounds=_ADDED)
    return min(taken["add"])
