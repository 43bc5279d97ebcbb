"""The command `malt run`: it starts a job, with what the options ask for, and waits for its end."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from malt.commands import hints
from malt.commands.placement import is_of_this_machine, placement
from malt.launch.command import Job, Line, compose, is_here, this_machine
from malt.launch.environment import outside
from malt.launch.hosts import allocation
from malt.launch.hosts.allocation import Host
from malt.launch.hosts.examination import examined
from malt.launch.injection import faults
from malt.launch.job import run_again
from malt.launch.machine.mpi_library import NAMES, LaunchError, Library, find_mpiexec
from malt.launch.program import check_program
from malt.launch.streams.display import Display, is_screen, make_files, ranks_of, say
from malt.runner.reporting import REJOIN, SURVIVE, survive_of
from malt.watch.metrics import METRICS, NEEDS, SUFFIX, TRACE, WRITERS


def main(
    chosen: argparse.Namespace, own: list[str], words: tuple[str, ...], is_marked: bool,
    library: Callable[[], Library],
) -> int:  # fmt: skip
    """Run the program of `words`, and return the status of its job. Local.

    `own`: the words before it. `is_marked`: `--` stands before it. library(): the MPI library, or LaunchError.
    LaunchError: the job cannot be started.
    """
    if not words:
        raise LaunchError("no PROGRAM to run (see malt run --help)")
    if not (chosen.n or chosen.nproc_per_node or chosen.compare or is_marked):
        hints.check_order([word for word in own[1:] if word != "-m"], words)
    if chosen.compare:
        return _compare(chosen, words, library)
    if chosen.rounds:
        raise LaunchError("--rounds goes with --compare N,N...")
    check_program(words)
    environ = outside(os.environ)
    ranks, where = placement(chosen, environ)
    if chosen.bootstrap and not all(is_here(host.name) for host in where):
        from malt.launch.bootstrap import start

        left = [word for word in own if word not in ("--bootstrap", "-m")]
        number = [] if chosen.n or chosen.nproc_per_node else ["-n", str(ranks)]
        start.run([*left, *number], words, where, _of_family(chosen.mpi, library()), environ)
    return _run(chosen, words, ranks, where, environ, library)


def _compare(chosen: argparse.Namespace, words: tuple[str, ...], library: Callable[[], Library]) -> int:
    from malt.commands.compare import command as compare

    environ = outside(os.environ)
    chosen.survive = _survive(chosen, environ)
    compare.check(chosen)
    for name in (SURVIVE, REJOIN, METRICS, TRACE):
        environ.pop(name, None)
    check_program(words)
    granted = allocation.found(environ)
    if granted is not None and not is_of_this_machine(granted):
        raise LaunchError("--compare measures on this machine only: run it on one host of the batch system")
    bound, machine = _of_family(chosen.mpi, library()), this_machine()
    mpiexec = find_mpiexec(bound, environ)
    return compare.main(chosen, words, environ, lambda job: compose(job, bound, mpiexec, machine, environ))


def _survive(chosen: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    """The value of MALT_SURVIVE for the job. LaunchError: the environment has another than those that there are."""
    try:
        return chosen.survive or survive_of(environ)
    except ValueError as error:
        raise LaunchError(str(error)) from None


def _run(
    chosen: argparse.Namespace, words: tuple[str, ...], ranks: int, where: tuple[Host, ...], environ: dict[str, str],
    library: Callable[[], Library],
) -> int:  # fmt: skip
    most = chosen.elastic[1] if chosen.elastic else ranks
    wanted = _wanted(chosen, words, ranks, where, environ)
    injected = _faults(chosen.inject, most, wanted.survive)
    bound = None if wanted.survive else _of_family(chosen.mpi, library())
    mpiexec = "" if bound is None else find_mpiexec(bound, environ)
    machine = this_machine()

    def line(environ: Mapping[str, str]) -> Line:
        """The line that starts the job in this environment. Pure."""
        return replace(compose(wanted, bound, mpiexec, machine, environ), faults=injected)

    first = line(environ)
    if chosen.dry_run:
        print(first)
        return 0
    if chosen.output is not None:
        try:
            make_files(chosen.output, most)
        except OSError as error:
            raise LaunchError(f"--output {chosen.output}: {error.strerror}") from None
    with contextlib.closing(examined(wanted, bound, environ, chosen.need)) as remote:
        start = partial(run_again, line, environ, chosen.restarts, chosen.grace, remote)
        if wanted.trace is None:
            return start()
        from malt.launch import traced

        return traced.run(start, chosen.trace, traced.facts(wanted, bound, machine, environ))


def _wanted(
    chosen: argparse.Namespace, words: tuple[str, ...], ranks: int, where: tuple[Host, ...], environ: dict[str, str]
) -> Job:  # fmt: skip
    """The job that the options ask for. Variables that they replace leave `environ`. LaunchError."""
    survive = _survive(chosen, environ) or ("1" if chosen.elastic else None)
    if chosen.elastic:
        from malt.commands import scale

        scale.check(chosen.elastic, ranks)
    if chosen.rejoin and survive is None:
        raise LaunchError("--rejoin needs --survive, or --survive=best-effort: otherwise a failed rank ends the job")
    view = chosen.view and _can_draw()
    most = chosen.elastic[1] if chosen.elastic else ranks
    display = Display(chosen.label or view, chosen.output, _shown(chosen.filter, most), view)
    metrics = None if chosen.metrics is None else _destination(chosen.metrics)
    if metrics is not None and (not where or any(is_here(host.name) for host in where)):
        _check_folder(metrics)
    trace = None if chosen.trace is None else os.path.abspath(chosen.trace)
    for name, is_given in ((SURVIVE, True), (REJOIN, True), (METRICS, metrics is not None), (TRACE, trace is not None)):
        if is_given:
            environ.pop(name, None)
    rejoin = chosen.rejoin or chosen.elastic is not None
    return Job(ranks, words, where, survive, display, metrics, trace, rejoin, chosen.elastic)


def _faults(values: Sequence[str], ranks: int, survive: str | None) -> faults.Faults | None:
    """Return the faults that --inject asks for, or None. A seed is drawn where the option names none."""
    if not values:
        return None
    try:
        found = faults.parsed(values, ranks, random.randrange(1_000_000))
    except ValueError as error:
        raise LaunchError(f"--inject: {error}") from None
    if found.every_s and survive is None:
        kind, _ = found.every_s[0]
        raise LaunchError(f"--inject {kind} needs --survive, or --survive=best-effort: otherwise it ends the job")
    return found


def _can_draw() -> bool:
    """Return whether a view can be drawn on this terminal. Says so if rich is what is missing."""
    if not any(map(is_screen, (1, 2))):
        return False
    if find_spec("rich") is None:
        say("malt run: --view needs rich, and draws nothing: pip install '.[view]' in the checkout\n")
        return False
    return True


def _destination(path: str) -> str:
    """Return where --metrics writes, for ranks with any working directory."""
    if not path.endswith(SUFFIX) and not any(map(find_spec, WRITERS)):
        raise LaunchError(f"--metrics {path}: {NEEDS}")
    return os.path.abspath(path)


def _check_folder(metrics: str) -> None:
    """Check that the folder of a file of --metrics is there: the first report may come hours later. LaunchError."""
    if metrics.endswith(SUFFIX) and not os.path.isdir(os.path.dirname(metrics)):
        raise LaunchError(f"--metrics {metrics}: there is no such folder")


def _shown(words: str | None, ranks: int) -> frozenset[int] | None:
    """The ranks that --filter names. None: all."""
    try:
        return None if words is None else ranks_of(words, ranks)
    except ValueError as error:
        raise LaunchError(f"--filter: {error}") from None


def _of_family(family: str, library: Library) -> Library:
    """Return `library`. LaunchError: it is not of the `family` that --mpi names."""
    if family not in ("auto", library.family):
        raise LaunchError(
            f"mpi4py in {sys.executable} is bound to {library}, not to {NAMES[family]}: use a Python environment with "
            f"{NAMES[family]} (or set MPI4PY_LIBMPI to its library)"
        )
    return library
