"""Measures how often apps.svm ends far from the optimum if other work keeps the cores busy.

    malt run -n 4 -m bench.benchmarks.svm.load [--quick] --json FILE

Every core has a process that never sleeps. A training of 10 epochs then takes about as long as a time slice of the
system, and a rank may have waited for its core while the others trained. The model must be good nevertheless.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import malt
from apps.svm import program
from bench.benchmarks.rows import Row
from bench.benchmarks.svm import task
from bench.harness import datasets, jobs

AVERAGES = ("model", "delta")
"""Models are the default of apps.svm; of changes none is lost where a rank is late."""
RUNS, QUICK_RUNS = range(200), range(10)
BAD = 0.1915
"""An objective 1.6 percent above the optimum. At rest four ranks end at 0.1902 to 0.1906."""


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep all cores busy, by processes of rank 0. Collective.

    Each is in a session of its own, as the work of others is: Linux shares the cores among sessions first.
    """
    cores = len(os.sched_getaffinity(0)) if malt.rank() == 0 else 0
    busy = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(busy, start_new_session=True) for _ in range(cores)]
    try:
        malt.barrier()
        yield
    finally:
        for one in processes:
            one.kill()


def objectives(average: str, seeds: Sequence[int]) -> list[float]:
    """The final objective of the run with each seed. Empty except on rank 0. Collective."""
    found = []
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nowhere:
        report = Path(folder, "report.json")
        for seed in seeds:
            with redirect_stdout(nowhere):
                options = ("--l2", task.L2, "--no-intercept", "--average", average, "--seed", seed, "--json", report)
                program.run([str(datasets.RCV1), *map(str, options)])
            if malt.rank() == 0:
                found.append(json.loads(report.read_text())["final"]["objective"])
    return found


def main() -> None:
    seeds = QUICK_RUNS if "--quick" in sys.argv else RUNS
    malt.init()
    rows = []
    for average in AVERAGES:
        name = f"SVM on rcv1-ccat, 4 ranks, asp, --average {average}, busy cores: runs that end above {BAD}"
        with busy_cores():
            found = objectives(average, seeds)
        bad = sum(one > BAD for one in found)
        note = f"{bad} of {len(seeds)}; the worst ended at {max(found, default=0.0):.4f}"
        rows.append(Row(name, "", None, float(bad), unit="runs", note=note))
    jobs.give([row._asdict() for row in rows])


if __name__ == "__main__":
    main()
