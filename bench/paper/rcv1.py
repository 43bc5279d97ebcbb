"""Many rows like those of RCV1 on hosts of their own: what graph "all" loses to its links, and "halton" does not."""

from __future__ import annotations

import math
from typing import Any

import malt
from bench.document import Measured
from bench.mf.comparison import CLOSE
from bench.paper import hosts
from bench.paper.workloads import Workload

RANKS = 10
"""Of which the page says most."""
FREE = 0.0, 1e15
"""A link that takes no time."""
GOALS = (CLOSE, 1.001)
"""As `Workload.close`: that of RCV1, and that of the same rows in docs/benchmarks.md."""
SECTION = """## RCV1 at its scale

The paper's RCV1 has far more rows than the news stories above. Here are {rows:,} like them, made of a seed, of
{nonzeros:.0f} out of {weights:,} features, in the same simulation: how many times as fast as by one rank they are
trained to the objective of one rank at its end, but for the share in the first column, and in how many epochs. A row
takes {row_us:.2f} us, a merge {merge_us:.0f} us. Epochs are counted whole. -: not reached in {epochs}. It is made by

    python -m bench.paper --only rcv1 --write docs/malt.md

{table}

![How many times as fast {ranks} hosts are](pictures/malt-rcv1.svg)

- To {goal:.1%} above the end {ranks} hosts are {few[0]} times as fast as one along "all", and {few[1]} times along
  "halton"; {most} hosts {many[0]} and {many[1]} times.
- The link keeps "all" back. In an exchange each of {ranks} hosts hands over {peers[0]} models of {kilobytes:.0f} KB,
  which take its link {link_ms[0]:.2f} ms. The next one comes after {taken_ms[0]:.2f} ms, of {every:,} rows and the
  merges, and its models supersede those that have not left: {left[0]:.0%} leave. Along "halton" there are {peers[1]}
  models, which take {link_ms[1]:.2f} ms of {taken_ms[1]:.2f}, and {left[1]:.0%} leave.
- So "all" takes {linked[0]} epochs, and "halton" {linked[1]}. On links that take no time it is {free[0]} and {free[1]}.
- That is the paper's reason for log N peers. Where all messages arrive, few peers mix models as well as all do; and the
  messages for few peers arrive.
"""


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


def section(found: Measured, table: str) -> str:
    """What the page says of it. `table`: of `to_the_ends`. Pure."""
    shape, end, place = found["shape"], to_the_ends(found)[0], hosts.RANKS.index(RANKS)
    several = [found["graphs"][graph] for graph in hosts.GRAPHS]
    peers = [len(malt.graph(graph, RANKS).sources(0)) for graph in hosts.GRAPHS]
    target = GOALS[0] * found["one"][-1][1]
    return SECTION.format(
        table=table, ranks=RANKS, most=hosts.RANKS[-1], goal=GOALS[0] - 1, every=hosts.EVERY, peers=peers,
        rows=shape["rows"], weights=shape["weights"], nonzeros=shape["nonzeros"],
        row_us=1e6 * found["row_s"], merge_us=1e6 * found["merge_s"], epochs=len(several[0][0]["epochs"]),
        few=_gains(end, place), many=_gains(end, -1), kilobytes=4e-3 * shape["weights"],
        taken_ms=[1e3 * (hosts.EVERY * found["row_s"] + count * found["merge_s"]) for count in peers],
        link_ms=[1e3 * count * 4 * shape["weights"] / hosts.BANDWIDTH for count in peers],
        left=[one[place]["left"] for one in several],
        linked=[_shown(end["graphs"][graph][place][1], ".0f") for graph in hosts.GRAPHS],
        free=[_shown(hosts.reached(found["free"][graph]["epochs"], target)[1], ".0f") for graph in hosts.GRAPHS],
    )  # fmt: skip


def _gains(end: Measured, place: int) -> list[str]:
    """How many times as fast as one, by graph."""
    return [_shown(end["one"][0] / end["graphs"][graph][place][0], ".1f") for graph in hosts.GRAPHS]


def _shown(value: float, form: str) -> str:
    return format(value, form) if 0 < value < math.inf else "-"
