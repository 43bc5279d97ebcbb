"""The program of a workload on simulated ranks: its report, and the bytes that it sends, the same in each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import malt
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm
from bench.benchmarks.svm import planted
from bench.harness import jobs
from bench.papers.malt.workloads import Workload

PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "apps.svm": svm.run, "bench.benchmarks.svm.planted": planted.run, "apps.mf": mf.run, "apps.mlp": mlp.run,
}  # fmt: skip


def report(
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


def counted(workload: Workload, graph: str = "all") -> dict[str, Any]:
    """What all ranks have sent in an epoch under bsp, and how good the model is then. Local.

    `dense` is what their messages would have taken with whole arrays.
    """
    words = (*workload.sparse, "--graph", graph, "--sync", "bsp", "--epochs", 1)
    last = report(workload, workload.simulated, words)["epochs"][-1]
    return {
        "sent": last["bytes_sent"], "dense": last["bytes_dense"], "messages": last["merged"],
        "measured": last[workload.measure],
    }  # fmt: skip
