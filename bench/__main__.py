"""Measures MALT against other libraries. Both sides of a comparison run in turns, in the same run.

    python -m bench [--quick] [--only PART ...] [--json docs/benchmarks.json]

The MPI library is that of the environment. Results of the other library in the file are kept, and with --only those of
the other parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import malt
from bench.benchmarks import rows as table
from bench.benchmarks import start
from bench.benchmarks.mf import comparison as factorization
from bench.benchmarks.rows import Row
from bench.benchmarks.svm import comparison as classification
from bench.benchmarks.svm import exchanges, logistic, straggler
from bench.harness import jobs
from bench.harness.datasets import NO_RCV1, RCV1
from bench.harness.document import as_markdown, new_file
from malt.launch.machine.mpi_library import bound_library


def in_job(module: str, ranks: int) -> Callable[[bool], list[Row]]:
    """A part that runs `module` on `ranks` ranks, and reads the rows that it writes."""
    return lambda quick: [Row(**row) for row in jobs.report(ranks, module, *["--quick"] * quick)]


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "messages": in_job("bench.benchmarks.messages", 2),
    "training": classification.rows,
    "logistic": logistic.rows,
    "libmf": factorization.rows,
    "straggler": straggler.rows,
    "exchanges": exchanges.rows,
    "load": in_job("bench.benchmarks.svm.load", 4),
    "start": start.rows,
}
WITHOUT_RCV1 = {"messages", "libmf", "start"}


def measure(options: argparse.Namespace) -> None:
    """Run the parts, print their tables, and write the files that were asked for."""
    made: dict[str, list[Row]] = {}
    for name in options.only or PARTS:
        print(f"... {name}", file=sys.stderr, flush=True)
        is_possible = RCV1.exists() or name in WITHOUT_RCV1
        made[name] = PARTS[name](options.quick) if is_possible else [table.missing(name, "", NO_RCV1)]
        print(f"{name}\n\n{as_markdown(table.table(made[name]))}\n")
    library = bound_library()
    about = {"mpi": f"{library.family} {'.'.join(map(str, library.version))}", "malt": malt.__version__}
    about["quick"] = options.quick
    if options.json:
        _write(options.json, library.family, about, made)


def _write(path: Path, family: str, about: dict[str, object], made: dict[str, list[Row]]) -> None:
    stored = json.loads(path.read_text()) if path.exists() else {"format": 4, "results": {}}
    before = stored["results"].get(family, {})
    is_same = about == {name: before.get(name) for name in about}
    today = time.strftime("%Y-%m-%d")
    measured = {"measured": today, "machine": machine()}
    new = {name: {**measured, "rows": [row._asdict() for row in rows]} for name, rows in made.items()}
    parts = {**(before["parts"] if is_same else {}), **new}
    stored["results"][family] = {**about, "parts": {name: parts[name] for name in PARTS if name in parts}}
    path.write_text(json.dumps(stored) + "\n", encoding="utf-8")


def machine() -> str:
    """A description of this machine, in one line."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()}, Python {python}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a developer in a hurry")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    return measure(parser.parse_args())


if __name__ == "__main__":
    main()
