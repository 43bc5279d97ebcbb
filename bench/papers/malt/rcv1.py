"""Many rows like those of RCV1 on hosts of their own: what graph "all" loses to its links, and "halton" does not."""

from __future__ import annotations

from typing import Any

import malt
from bench.benchmarks.mf.comparison import CLOSE
from bench.harness.document import Measured
from bench.papers.malt import hosts
from bench.papers.malt.workloads import Workload

RANKS = 10
"""Of which the page says most."""
FREE = 0.0, 1e15
"""A link that takes no time."""
GOALS = (CLOSE, 1.001)
"""As `Workload.close`: that of RCV1, and that of the same rows in docs/benchmarks.md."""


def measured(workload: Workload) -> dict[str, Any]:
    """`hosts.curves` of the workload; and what RANKS reach where links take no time, by graph. Starts a job."""
    epochs = workload.epochs[1]
    found = hosts.curves(workload, epochs)
    pace = found["row_s"], found["merge_s"]
    free = {graph: hosts.several(workload, graph, RANKS, pace, epochs, FREE) for graph in hosts.GRAPHS}
    return {**found, "free": free}


def to_the_ends(found: Measured) -> list[dict[str, Any]]:
    """As `hosts.compared`, for each of the goals, which is the name. Pure."""
    return [{**hosts.to_the_end(found, goal), "name": f"{goal - 1:.1%}"} for goal in GOALS]


def figures(found: Measured) -> dict[str, Any]:
    """What the page says of it, of RANKS where nothing else is said. Lists are by graph. Pure."""
    shape, end, place = found["shape"], to_the_ends(found)[0], hosts.RANKS.index(RANKS)
    several = [found["graphs"][graph] for graph in hosts.GRAPHS]
    peers = [len(malt.graph(graph, RANKS).sources(0)) for graph in hosts.GRAPHS]
    target = GOALS[0] * found["one"][-1][1]
    return {
        **shape, "ranks": RANKS, "most": hosts.RANKS[-1], "goal": GOALS[0] - 1, "every": hosts.EVERY, "peers": peers,
        "row_us": 1e6 * found["row_s"], "merge_us": 1e6 * found["merge_s"], "epochs": len(several[0][0]["epochs"]),
        "few": _gains(end, place), "many": _gains(end, -1), "kilobytes": 4e-3 * shape["weights"],
        "taken_ms": [1e3 * (hosts.EVERY * found["row_s"] + count * found["merge_s"]) for count in peers],
        "link_ms": [1e3 * count * 4 * shape["weights"] / hosts.BANDWIDTH for count in peers],
        "left": [one[place]["left"] for one in several],
        "linked": [end["graphs"][graph][place][1] for graph in hosts.GRAPHS],
        "free": [hosts.reached(found["free"][graph]["epochs"], target)[1] for graph in hosts.GRAPHS],
    }  # fmt: skip


def _gains(end: Measured, place: int) -> list[float]:
    """How many times as fast as one, by graph."""
    return [float(end["one"][0] / end["graphs"][graph][place][0]) for graph in hosts.GRAPHS]
