"""`malt run --compare`: the same program on several numbers of ranks, in turns, and a table of what that takes.

What each rank has reported and counted is read from files that it writes as under --metrics
(malt/watch/metrics.py).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dstorm.words import count
from malt.commands.compare.comparison import Run, measured, table
from malt.commands.options import ROUNDS
from malt.launch import job
from malt.launch.command import Job
from malt.launch.command import Line as CommandLine
from malt.launch.machine.cores import usable_cores
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.streams.display import Display, make_files, say
from malt.watch import jobs
from malt.watch.metrics import COUNTS, lines

_HERE = "it measures on this machine only"
_WHOLE = "a run in which ranks fail is not a measurement"
_QUIET = "the output of the ranks is not shown; --output DIR saves it"
_OWN = "it uses the reports of each run itself"
REFUSED = {
    "hosts": _HERE, "hostfile": _HERE, "bootstrap": _HERE, "need": _HERE, "survive": _WHOLE, "rejoin": _WHOLE,
    "elastic": _WHOLE, "restarts": _WHOLE, "inject": _WHOLE, "label": _QUIET, "filter": _QUIET, "view": _QUIET,
    "metrics": _OWN, "trace": "recording events takes time", "dry_run": "it runs several lines: give -n N",
}  # fmt: skip
"""The options that do not go with --compare, and why."""


def check(chosen: argparse.Namespace) -> None:
    """Raise LaunchError where an option cannot be combined with --compare."""
    for name, why in REFUSED.items():
        if getattr(chosen, name):
            raise LaunchError(f"--compare cannot be combined with --{name.replace('_', '-')}: {why}")


def turns(numbers: Sequence[int], rounds: int) -> Iterator[tuple[int, int]]:
    """The round, from 1, and the number of ranks of each run: every second round goes backwards. Pure."""
    for turn in range(1, rounds + 1):
        for ranks in numbers if turn % 2 else reversed(numbers):
            yield turn, ranks


def main(
    chosen: argparse.Namespace, program: tuple[str, ...], environ: Mapping[str, str],
    compose: Callable[[Job], CommandLine],
) -> int:  # fmt: skip
    """Run `program` on each number of ranks that `chosen` names, in turns, and print the table. Returns 0. Local.

    Where a run fails, or a signal ends it, nothing more is run, and its status is returned. `compose`: the line that
    starts a job in `environ`. LaunchError: a folder cannot be written, or a job cannot be started.
    """
    folder = Path(chosen.output or tempfile.mkdtemp(prefix="malt-compare-"))
    is_kept, runs = chosen.output is not None, []
    try:
        with _no_input():
            for turn, ranks in turns(chosen.compare, chosen.rounds or ROUNDS):
                own = folder / f"round-{turn}-ranks-{ranks}"
                end, run = _run(own, ranks, program, environ, compose, chosen.grace)
                title = f"malt run: round {turn} on {count(ranks, 'rank')}"
                if end.is_notified:  # of which the job has said so
                    return end.status
                if end.status:
                    is_kept = True
                    say(f"{title} ended with status {end.status}: {own} has what its ranks printed\n")
                    return end.status
                say(f"{title}: {run.wall_s:.2f} s\n")
                runs.append(run)
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    print(table(jobs.beginning(program), runs, usable_cores()))
    return 0


def _run(
    folder: Path, ranks: int, program: tuple[str, ...], environ: Mapping[str, str],
    compose: Callable[[Job], CommandLine], grace_s: float,
) -> tuple[job.End, Run]:  # fmt: skip
    """One run, whose files lie in `folder`: how it has ended, and what it was like. LaunchError."""
    reports, counts = folder / "reports.jsonl", folder / "counts.jsonl"
    try:
        make_files(str(folder), ranks)
        for path in (reports, counts):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LaunchError(f"--output {folder}: {error.strerror}") from None
    wanted = Job(ranks, program, display=Display(folder=str(folder), ranks=frozenset()), metrics=str(reports))
    began, start = time.time(), time.monotonic()
    end = job.run(compose(wanted), {**environ, COUNTS: str(counts)}, grace_s)
    wall_s = time.monotonic() - start
    return end, measured(ranks, wall_s, began, [*lines(counts)], [*lines(reports)])


@contextlib.contextmanager
def _no_input() -> Iterator[None]:
    """Have the block read nothing from standard input: else the first run would take what all are to read."""
    kept = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)
