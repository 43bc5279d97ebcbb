"""apps.logistic, and what each rank has moved and the memory that it has taken.

malt run -n 2 -m bench.angel.training OUT [arguments of apps.logistic]
"""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import malt
from apps import harness
from apps.logistic import program
from bench import jobs, traffic
from bench.angel.memory import Peak
from malt.kernels import compile_first

Taken = dict[str, Any]
"""Of a run: its report, and by rank the bytes that it has moved, the most memory in MB, and that before training."""
LATENCY_S, BANDWIDTH = 100e-6, 125e6
"""Of the network of the simulation: 1 Gbit/s."""


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


def trained(ranks: int, *words: object) -> Taken:
    """What a job of its own has taken. CalledProcessError: it failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        taken = jobs.result(ranks, "bench.angel.training", *words, "--json", report)
        return {**taken, "report": json.loads(report.read_text(encoding="utf-8"))}


def simulated(ranks: int, *words: object) -> Taken:
    """What simulated ranks have taken, each on a host of its own, where computing takes no time. Local."""
    taken, report = jobs.simulated(run, ranks, words, malt.Network(LATENCY_S, BANDWIDTH))
    return {**taken, "report": report}


if __name__ == "__main__":
    harness.main("bench.angel.training", lambda arguments: jobs.give(run(arguments[1:])))
