"""Measures how long a job of 4 ranks takes to start and end, against mpi4py with a barrier."""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path

from bench.benchmarks.rows import Row
from bench.harness import jobs
from bench.harness.timing import alternate

RANKS = 4
OURS = "import malt; malt.init()"
BARE = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"


def rows(quick: bool) -> list[Row]:
    """One row: the seconds that MALT adds."""
    with tempfile.TemporaryDirectory() as folder:
        files = {code: Path(folder, f"{place}.py") for place, code in enumerate((OURS, BARE))}
        for code, file in files.items():
            file.write_text(code)
        contenders = {code: partial(jobs.run, RANKS, file) for code, file in files.items()}
        times = alternate(contenders, rounds=3 if quick else 7)
    more = statistics.median(mine - bare for mine, bare in zip(times[OURS], times[BARE], strict=True))
    name = "start and end of 4 ranks: time that MALT adds to mpi4py"
    return [Row(name, "", None, more)]
