"""Bytes that ranks send in an epoch: rows of weights beside whole weights, by graph. Simulated ranks count them."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import malt
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm
from bench.paper.workloads import Workload
from bench.svm import planted

PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "apps.svm": svm.run, "bench.svm.planted": planted.run, "apps.mf": mf.run, "apps.mlp": mlp.run,
}  # fmt: skip
GRAPHS = ("all", "halton", "ring", "star")


def counted(workload: Workload, graph: str) -> dict[str, Any]:
    """What all ranks have sent in an epoch under bsp, and how good the model is then. Local.

    `dense` is what their messages would have taken with whole arrays.
    """
    module, *words = map(str, (*workload.words, *workload.sparse))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder, "report.json")
        words += ["--graph", graph, "--sync", "bsp", "--epochs", "1", "--json", str(file)]
        malt.simulate(lambda rank: PROGRAMS[module](words), workload.simulated)
        last = json.loads(file.read_text(encoding="utf-8"))["epochs"][-1]
    return {
        "sent": last["bytes_sent"], "dense": last["bytes_dense"], "messages": last["merged"],
        "measured": last[workload.measure],
    }  # fmt: skip
