"""Jobs on ranks of their own: what they report of themselves, and the rows that they write."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import rows
from bench.rows import Row

Report = dict[str, Any]
"""The JSON report of a program of apps/."""


def run(ranks: int, *words: object, quietly: bool = False) -> None:
    """Run `malt run -n RANKS WORDS` to its end. CalledProcessError: it failed."""
    command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quietly else None)


def report(ranks: int, module: str, *words: object, options: Sequence[str] = ()) -> Report:
    """The report of the program `module` on `ranks` ranks. `options`: those of `malt run`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        run(ranks, *options, "-m", module, *words, "--json", file, quietly=True)
        made: Report = json.loads(file.read_text())
        return made


def seconds_to(target: float, measure: str, made: Report) -> float:
    """Seconds of training until an epoch brings `measure` down to the target; infinity if none does."""
    return next((epoch["seconds"] for epoch in made["epochs"] if epoch[measure] <= target), math.inf)


def rows_of(module: str, ranks: int) -> Callable[[bool], list[Row]]:
    """A part of the benchmark that runs `module` on `ranks` ranks and reads the rows that it writes."""

    def part(quick: bool) -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.json")
            run(ranks, "-m", module, file, *(["--quick"] if quick else []))
            return rows.from_json(json.loads(file.read_text()))

    return part
