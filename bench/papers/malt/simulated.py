"""The program of a workload on simulated ranks: its report, the same in each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
