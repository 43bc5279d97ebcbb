"""Jobs on ranks of their own, and what they report of themselves."""

from __future__ import annotations

import contextlib
import io
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

T = TypeVar("T")
Report = Any
"""The JSON of a program: of those of apps/ a report, with "epochs", a dict each, and "final"."""
GIGABIT = 100e-6, 125e6
"""Latency in seconds and bytes a second of the network of simulated hosts: 1 Gbit/s."""


def run(ranks: int, *words: object, quietly: bool = False) -> None:
    """Run `malt run -n RANKS WORDS` to its end. CalledProcessError: it failed."""
    command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quietly else None)


def report(ranks: int, module: str, *words: object, options: Sequence[str] = ()) -> Report:
    """The JSON that the program `module` writes on `ranks` ranks. `options`: those of `malt run`.

    The program's last argument is the file, after --json. CalledProcessError: it failed.
    """
    return _written(lambda file: run(ranks, *options, "-m", module, *words, "--json", file, quietly=True))


def give(found: object) -> None:
    """Be done: write what was found as the JSON of this program. Other ranks do nothing. Local."""
    if malt.lowest():
        Path(sys.argv[-1]).write_text(json.dumps(found), encoding="utf-8")


def _written(work: Callable[[Path], object]) -> Any:
    """What `work` has written as JSON to the file that it is given."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        work(file)
        return json.loads(file.read_text(encoding="utf-8"))


def simulated(
    run: Callable[[list[str]], T], ranks: int, words: Sequence[object], network: malt.Network | None
) -> tuple[T, Report]:
    """What run(words) returns on rank 0 of a simulation, and the report that it writes for --json. Local."""
    found: list[T] = []

    def work(file: Path) -> None:
        arguments = [*map(str, words), "--json", str(file)]
        nowhere = io.StringIO()
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            found.extend(malt.simulate(lambda _: run(arguments), ranks, network=network))

    made = _written(work)
    return found[0], made


def processes(count: int, words: Sequence[str], variables: Mapping[str, str]) -> Any:
    """The JSON of so many Python processes that meet as those of torch.distributed. RuntimeError: one has failed.

    Their last argument is its file, after --json.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), **variables}

    def work(file: Path) -> None:
        whole = [sys.executable, *words, "--json", str(file)]
        started = [subprocess.Popen(whole, env={**common, "RANK": str(n)}) for n in range(count)]
        failed = [one.wait() for one in started]
        if any(failed):
            raise RuntimeError(f"{' '.join(words)} has failed")

    return _written(work)


def first(epochs: Sequence[Report], measure: str, target: float, rising: bool = False) -> Report:
    """The first epoch that brings `measure` down to the target, or, where it is `rising`, up to it; {}: none does."""
    sign = -1 if rising else 1
    return next((epoch for epoch in epochs if sign * epoch[measure] <= sign * target), {})


def seconds_to(target: float, measure: str, made: Report) -> float:
    """Seconds of training until an epoch brings `measure` down to the target; infinity if none does."""
    return float(first(made["epochs"], measure, target).get("seconds", math.inf))
