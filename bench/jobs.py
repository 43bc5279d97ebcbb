"""Jobs on ranks of their own: what they report of themselves, and the rows that they write."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import malt
from bench import rows
from bench.rows import Row

T = TypeVar("T")
Report = dict[str, Any]
"""The JSON report of a program of apps/."""


def run(ranks: int, *words: object, quietly: bool = False) -> None:
    """Run `malt run -n RANKS WORDS` to its end. CalledProcessError: it failed."""
    command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quietly else None)


def result(ranks: int, module: str, *words: object, options: Sequence[str] = ()) -> Any:
    """What the program `module` passes to `give`: its first argument is a file. CalledProcessError: it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        run(ranks, *options, "-m", module, file, *words, quietly=True)
        return json.loads(file.read_text(encoding="utf-8"))


def give(found: object) -> None:
    """Be done: write what was found to the file that is the program's first argument. Other ranks do nothing. Local."""
    if malt.lowest():
        Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


def report(ranks: int, module: str, *words: object, options: Sequence[str] = ()) -> Report:
    """The report of the program `module` on `ranks` ranks. `options`: those of `malt run`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        run(ranks, *options, "-m", module, *words, "--json", file, quietly=True)
        made: Report = json.loads(file.read_text(encoding="utf-8"))
        return made


def simulated(
    run: Callable[[list[str]], T], ranks: int, words: Sequence[object], network: malt.Network | None
) -> tuple[T, Report]:
    """What run(words) returns on rank 0 of a simulation, and the report that it writes for --json. Local."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nowhere:
        file = Path(folder, "report.json")
        arguments = [*map(str, words), "--json", str(file)]
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            first, *_ = malt.simulate(lambda _: run(arguments), ranks, network=network)
        return first, json.loads(file.read_text(encoding="utf-8"))


def processes(count: int, words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Run so many Python processes that meet as those of torch.distributed. RuntimeError: one has failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), **variables}
    started = [subprocess.Popen([sys.executable, *words], env={**common, "RANK": str(n)}) for n in range(count)]
    failed = [one.wait() for one in started]
    if any(failed):
        raise RuntimeError(f"{' '.join(words)} has failed")


def seconds_to(target: float, measure: str, made: Report) -> float:
    """Seconds of training until an epoch brings `measure` down to the target; infinity if none does."""
    return next((epoch["seconds"] for epoch in made["epochs"] if epoch[measure] <= target), math.inf)


def rows_of(module: str, ranks: int) -> Callable[[bool], list[Row]]:
    """A part of the benchmark that runs `module` on `ranks` ranks and reads the rows that it writes."""

    return lambda quick: rows.from_json(result(ranks, module, *(["--quick"] if quick else [])))
