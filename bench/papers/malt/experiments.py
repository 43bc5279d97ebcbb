"""What is measured of the workloads: speedups of real and of simulated ranks, bytes, and a training with a failure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import malt
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm
from bench.benchmarks.svm import planted
from bench.harness import jobs
from bench.harness.document import say
from bench.harness.timing import ratio, turns
from bench.papers.malt import workloads
from bench.papers.malt.workloads import Workload
from malt.commands.plan.losses import Charge
from malt.commands.plan.measuring import merge_s
from malt.session.session import world

RANKS = 2
"""Of the speedup of real ranks."""
NETWORK = "InfiniBand, 40 Gbit/s"
"""The paper's."""
LATENCY_S, BANDWIDTH = 1.5e-6, 5e9
HOSTS, GRAPHS = (2, 5, 10, 20), ("all", "halton")
EVERY = 1000
"""Rows of a rank on a host of its own between two exchanges. The paper: 1,000 to 5,000."""
LINEAR = ("alpha", "DNA")
"""What is compared on hosts beside RCV1: for webspam queues between 20 ranks would take gigabytes."""
FAILING, FAILING_EVERY, KILLED_IN, EPOCHS = 4, 500, 6, 24
"""Of the failure: ranks, rows between two exchanges, the epoch in which a rank is killed, and epochs in all."""
PLACES = 200
"""Letters of a row that a rank trains on which may be killed."""
FAILURES = {"without": ((), ()), "killed": (("--killed-in", KILLED_IN), ()),
            "rejoined": (("--killed-in", KILLED_IN), ("--rejoin",))}  # fmt: skip
"""By run, the options of the program and those of `malt run`."""
PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "apps.svm": svm.run, "bench.benchmarks.svm.planted": planted.run, "apps.mf": mf.run, "apps.mlp": mlp.run,
}  # fmt: skip


def speedup(workload: Workload, rounds: int) -> dict[str, Any]:
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


def simulated(
    workload: Workload, ranks: int, words: Sequence[object], network: malt.Network | None = None,
    begin: Callable[[], object] = lambda: None,
) -> jobs.Report:  # fmt: skip
    """The report of the workload's program with the further options `words`. Its seconds are virtual. Local.

    Each rank calls `begin` first. Without a network nothing takes time.
    """

    def run(arguments: Sequence[str]) -> None:
        begin()
        PROGRAMS[str(workload.words[0])](arguments)

    return jobs.simulated(run, ranks, (*workload.words[1:], *words), network)[1]


def on_hosts(workload: Workload) -> dict[str, Any]:
    """What 1 and each number of HOSTS take to the end of one rank, nearly. Starts a job.

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
        say(f"{workload.name}: up to {HOSTS[-1]} simulated hosts, graph {graph}")
        found = [several(workload, graph, ranks, (row_s, added_s)) for ranks in HOSTS]
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
    made = simulated(workload, ranks, words, malt.Network(*link), lambda: charge(taken))["epochs"]
    left = made[-1]["bytes_sent"] / made[-1]["bytes_dense"]
    return {"epochs": [[epoch["seconds"], epoch[workload.measure]] for epoch in made], "left": left}


def reached(curve: Sequence[Sequence[float]], target: float) -> list[float]:
    """Seconds and epochs until the measure is `target` or less; infinity: it never is. Pure."""
    epochs = ([seconds, epoch] for epoch, (seconds, measured) in enumerate(curve, 1) if measured <= target)
    return next(epochs, [math.inf, math.inf])


def charge(seconds: float) -> None:
    """Let so much virtual time pass before each exchange of this simulated rank. Local."""
    world().meter = Charge(seconds)


def traffic(workload: Workload, graph: str = "all") -> dict[str, Any]:
    """What all ranks have sent in an epoch under bsp, and how good the model is then. Local.

    `dense` is what their messages would have taken with whole arrays.
    """
    words = (*workload.sparse, "--graph", graph, "--sync", "bsp", "--epochs", 1)
    last = simulated(workload, workload.simulated, words)["epochs"][-1]
    return {
        "sent": last["bytes_sent"], "dense": last["bytes_dense"], "messages": last["merged"],
        "measured": last[workload.measure],
    }  # fmt: skip


def failure(rows: int, folder: Path, until_back: bool) -> dict[str, Any]:
    """Seconds and objective of each epoch without a failure, with one, and where the rank comes back; what the reports
    say of the failure.

    `until_back`: the others wait for the rank, which would else come too late on a machine that is busy.
    """
    own = folder / "failure"
    own.mkdir()
    planted.write(workloads.strings(rows, PLACES), own)
    words = (own, "--no-intercept", "--sync", "bsp", "--exchange-every", FAILING_EVERY, "--epochs", EPOCHS)
    runs = {}
    for name, (struck, options) in FAILURES.items():
        waiting = ("--until-back",) * (until_back and bool(options))
        runs[name] = jobs.report(FAILING, "bench.papers.malt.struck", *words, *struck, *waiting,
                                 options=["--survive", *options])  # fmt: skip
    curves = {name: [[epoch["seconds"], epoch["objective"]] for epoch in made["epochs"]] for name, made in runs.items()}
    [lost], [back] = (runs[name]["lost_ranks"] for name in ("killed", "rejoined"))
    return {**curves, "lost": lost, "back": back, "rows": rows}
