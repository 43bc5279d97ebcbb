"""apps.logistic, and what each rank has moved and the memory that it has taken.

malt run -n 2 -m bench.papers.angel.training [arguments of apps.logistic] --json FILE
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import malt
from apps import harness
from apps.logistic import program
from bench.harness import jobs, traffic
from bench.papers.angel.memory import Peak
from malt.kernels import compile_first

Taken = dict[str, Any]
"""Of a run: its report, and by rank the bytes that it has moved, the most memory in MB, and that before training."""


class Program(program.Program):
    """apps.logistic. `peak` begins when the rows are there and all is compiled."""

    peak: Peak

    def load(self, options: Namespace) -> program.Problem:
        problem = super().load(options)
        compile_first(problem.compile)
        self.peak = Peak()
        return problem


def run(arguments: Sequence[str]) -> Taken:
    """Run apps.logistic, and return what it has taken. Collective."""
    made = Program()
    harness.run(made, arguments)
    most, before = made.peak.most(), made.peak.before
    world = malt.init()
    own = dict(traffic.edges(world.sharded))
    for peer, edge in world.statistics().peers.items():
        own[peer] += edge.bytes_sent
    moved = traffic.moved(traffic.gathered(own))
    return {"moved": moved, "most_mb": malt.allgather(most), "before_mb": malt.allgather(before)}


def simulated(ranks: int, *words: object) -> Taken:
    """What simulated ranks have taken, each on a host of its own, where computing takes no time. Local."""
    taken, report = jobs.simulated(run, ranks, words, malt.Network(*jobs.GIGABIT))
    return {**taken, "report": report}


def _give(arguments: Sequence[str]) -> None:
    """Run apps.logistic, and give what it has taken with its report. Collective."""
    taken = run(arguments)
    report = json.loads(Path(arguments[-1]).read_text(encoding="utf-8")) if malt.lowest() else None
    jobs.give({**taken, "report": report})


if __name__ == "__main__":
    harness.main("bench.papers.angel.training", _give)
