"""Compares what ranks can exchange: models, changes of models, gradients; all weights, or those that were touched.

    python -m bench.pages.averages [--json docs/averages.json]

It runs apps.svm on rcv1-ccat, or on the embedded data if that is missing. Under bsp every run has the same results.
"""

from __future__ import annotations

from argparse import Namespace

from bench.benchmarks.svm.task import L2
from bench.harness import document, jobs
from bench.harness.datasets import RCV1
from bench.harness.document import Measured, Table
from dstorm.words import count

RANKS, EPOCHS = 4, (1, 2, 5, 10)


def report(average: str, vector: str) -> jobs.Report:
    """The report of a run of apps.svm."""
    data = [RCV1, "--no-intercept"] if RCV1.exists() else []
    return jobs.report(
        RANKS, "apps.svm", *data, "--average", average, "--vector", vector, "--sync", "bsp", "--l2", L2
    )  # fmt: skip


def table() -> Table:
    """A row per run."""
    titles = [count(epoch, "epoch") for epoch in EPOCHS]
    rows = [["exchanged", "vector", *titles, "final", "bytes sent"]]
    for average in ("model", "delta", "gradient"):
        for vector in ("dense", "sparse"):
            found = report(average, vector)
            objectives = [found["epochs"][epoch - 1]["objective"] for epoch in EPOCHS]
            shown = [f"{one:.4f}" for one in [*objectives, found["final"]["objective"]]]
            rows.append([average, vector, *shown, f"{found['epochs'][-1]['bytes_sent']:,}"])
    return rows


def measured(_: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    return {
        "tables": {"runs": table()},
        "figures": {"ranks": RANKS, "data": "rcv1-ccat (no intercept)" if RCV1.exists() else "the embedded data, a9a"},
    }


if __name__ == "__main__":
    document.measure("bench.pages.averages", str(__doc__), measured)
