"""Measures MALT against other libraries. Both sides of a comparison run in turns, in the same run.

    python -m bench [--quick] [--only PART ...] [--json bench/results.json] [--page docs/benchmarks.md]
    python -m bench compare OLD.json NEW.json

The MPI library is that of the environment. Results of the other library in the file are kept, and with --only those of
the other parts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import malt
from bench import jobs, scale, start
from bench import rows as table
from bench.document import new_file
from bench.mf import comparison as factorization
from bench.picture import headlines, picture
from bench.rows import Row
from bench.svm import comparison as classification
from bench.svm import exchanges, logistic, straggler
from malt.launch.mpi_library import bound_library

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("page.md")
_MPI = {"openmpi": "Open MPI", "mpich": "MPICH"}
_HEADINGS = {
    "training": "Linear SVM",
    "logistic": "Logistic regression",
    "factorization": "Matrix factorization",
    "libmf": "Matrix factorization, compared with LIBMF",
    "straggler": "One slow rank",
    "exchanges": "Exchanges of the dual SVM",
    "load": "Busy cores",
    "start": "Start and end of a job",
    "scale": "Many ranks",
}
"""Of parts whose names say too little."""


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "messages": jobs.rows_of("bench.messages", 2),
    "training": classification.rows,
    "logistic": logistic.rows,
    "factorization": factorization.several_ranks,
    "libmf": factorization.against_libmf,
    "straggler": straggler.rows,
    "exchanges": exchanges.rows,
    "load": jobs.rows_of("bench.svm.load", 4),
    "start": start.rows,
    "scale": scale.rows,
}


def measure(options: argparse.Namespace) -> None:
    """Run the parts, print their table, and write the files that were asked for."""
    made: dict[str, list[Row]] = {}
    for name in options.only or PARTS:
        print(f"... {name}", file=sys.stderr, flush=True)
        made[name] = PARTS[name](options.quick)
    library = bound_library()
    about = {"mpi": f"{library.family} {'.'.join(map(str, library.version))}", "malt": malt.__version__}
    about["quick"] = options.quick
    print(f"{about['mpi']}\n\n{table.table(list(itertools.chain(*made.values())))}")
    if options.json:
        _write(options.json, library.family, about, made)
        if options.page:
            options.page.write_text(page(options.json), encoding="utf-8")
            drawing = options.page.parent / "pictures" / "peers.svg"
            drawing.parent.mkdir(exist_ok=True)
            drawing.write_text(drawn(options.json), encoding="utf-8")


def _write(path: Path, family: str, about: dict[str, object], made: dict[str, list[Row]]) -> None:
    stored = json.loads(path.read_text()) if path.exists() else {"format": 3, "results": {}}
    before = stored["results"].get(family, {})
    is_same = about == {name: before.get(name) for name in about}
    today = time.strftime("%Y-%m-%d")
    measured = {"measured": today, "machine": machine()}
    new = {name: {**measured, "rows": table.to_json(rows)} for name, rows in made.items()}
    parts = {**(before["parts"] if is_same else {}), **new}
    stored["results"][family] = {**about, "parts": {name: parts[name] for name in PARTS if name in parts}}
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def page(path: Path) -> str:
    """The text of docs/benchmarks.md for a results file. Figures in its sentences are ratios of the first MPI library.

    A question mark stands for the ratio of a row that was not measured.
    """
    stored, first = json.loads(path.read_text()), next(iter(table.read(path).values()))
    sections = []
    for result in stored["results"].values():
        sections.append(f"## {_MPI[result['mpi'].split()[0]]}{', a quick run' if result['quick'] else ''}\n")
        for name, part in result["parts"].items():
            rows = table.page_table(table.from_json(part["rows"]))
            heading = _HEADINGS.get(name, name.capitalize())
            sections.append(f"### {heading}, {part['measured']}\n\n{part['machine']}.\n\n{rows}\n")
    text = PAGE.read_text(encoding="utf-8").replace("{results}", "\n".join(sections))
    text = text.replace("{headlines}", headlines(first))
    ratios = {f"{row.name} | {row.against}": f"{row.ratio:.3g}" for row in first if row.ratio is not None}
    return re.sub(r"\{(.+?)\}", lambda found: ratios.get(found[1], "?"), text)


def drawn(path: Path) -> str:
    """The text of docs/pictures/peers.svg for a results file: of the first MPI library in it."""
    return picture(next(iter(table.read(path).values())))


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


def compare(old: Path, new: Path) -> None:
    """Print the rows that changed by more than noise."""
    before, after = table.read(old), table.read(new)
    for mpi in sorted(before.keys() & after.keys()):
        lines = table.compare(before[mpi], after[mpi])
        print("\n".join([f"{mpi}: {len(lines)} of {len(after[mpi])} changed", *lines]))


def main() -> None:
    if sys.argv[1:2] == ["compare"]:
        if len(sys.argv) != 4:
            sys.exit("python -m bench compare OLD.json NEW.json")
        return compare(Path(sys.argv[2]), Path(sys.argv[3]))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a developer in a hurry")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    parser.add_argument("--page", type=new_file, metavar="FILE", help="write the page there")
    return measure(parser.parse_args())


if __name__ == "__main__":
    main()
