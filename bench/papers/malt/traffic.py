"""Bytes that ranks send in an epoch: rows of weights beside whole weights, by graph. Simulated ranks count them."""

from __future__ import annotations

from typing import Any

from bench.papers.malt import simulated
from bench.papers.malt.workloads import Workload

GRAPHS = ("all", "halton", "ring", "star")


def counted(workload: Workload, graph: str) -> dict[str, Any]:
    """What all ranks have sent in an epoch under bsp, and how good the model is then. Local.

    `dense` is what their messages would have taken with whole arrays.
    """
    words = (*workload.sparse, "--graph", graph, "--sync", "bsp", "--epochs", 1)
    last = simulated.report(workload, workload.simulated, words)["epochs"][-1]
    return {
        "sent": last["bytes_sent"], "dense": last["bytes_dense"], "messages": last["merged"],
        "measured": last[workload.measure],
    }  # fmt: skip
