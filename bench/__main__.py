"""Measures MALT against other libraries. Both sides of a comparison run in turns, in the same run.

    python -m bench [--quick] [--only PART ...] [--json docs/benchmarks.json]

The MPI library is that of the environment. A quick run has fewer rounds, and leaves the 300,000 rows and epinions out.
"""

from __future__ import annotations

import os
import platform
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.benchmarks import mf, page, start
from bench.benchmarks import rows as table
from bench.benchmarks.rows import Row
from bench.benchmarks.svm import comparison as classification
from bench.benchmarks.svm import exchanges, logistic, straggler
from bench.harness import document, jobs
from bench.harness.datasets import NO_RCV1, RCV1
from bench.harness.document import Measured, say
from malt.launch.machine.mpi_library import bound_library


def in_job(module: str, ranks: int) -> Callable[[bool], list[Row]]:
    """A part that runs `module` on `ranks` ranks, and reads the rows that it writes."""
    return lambda quick: [Row(**row) for row in jobs.report(ranks, module, *["--quick"] * quick)]


ROWS: dict[str, Callable[[bool], list[Row]]] = {
    "messages": in_job("bench.benchmarks.messages", 2),
    "training": classification.rows,
    "logistic": logistic.rows,
    "libmf": mf.rows,
    "straggler": straggler.rows,
    "exchanges": exchanges.rows,
    "load": in_job("bench.benchmarks.svm.load", 4),
    "start": start.rows,
}
WITHOUT_RCV1 = {"messages", "libmf", "start"}


def part(name: str, options: Namespace, _: Measured) -> Measured:
    """The rows of a part, with the machine and the day."""
    say(name)
    is_possible = RCV1.exists() or name in WITHOUT_RCV1
    found = ROWS[name](options.scale == "quick") if is_possible else [table.missing(name, "", NO_RCV1)]
    about = {"machine": machine(), "measured": time.strftime("%Y-%m-%d")}
    return {name: {**about, "rows": [row._asdict() for row in found]}}


PARTS: dict[str, document.Part] = {name: partial(part, name) for name in ROWS}


def machine() -> str:
    """The MPI library and this machine, in one line."""
    library, cpu = bound_library(), Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{library.family} {'.'.join(map(str, library.version))}; {os.cpu_count()} cores ({model}), {memory:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    document.measure(
        "bench", str(__doc__), lambda _: {}, page.tables, parts=PARTS, scales=("whole", "quick"), are_apart=True
    )  # fmt: skip
