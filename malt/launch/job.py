"""A job from the start of its mpiexec to its end, after which nothing of it is left."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from malt.launch.command import Line
from malt.launch.control import ControlServer
from malt.launch.departure import Departure
from malt.launch.job_state import JobState, failed_with, report_ends_inside_mpi
from malt.launch.observer import Observer
from malt.launch.signals import Signals
from malt.launch.streams.display import say
from malt.launch.streams.output import Output
from malt.launch.supervisor import Supervised
from malt.runner.program import FAILURE_DIR, JOB_DIR, SESSION_BASE
from malt.runner.reporting import CONTROL_SERVER
from malt.watch import jobs
from malt.watch.ranks import ranks_with

GRACE_S = 10.0
"""How long ranks may take to leave after a signal to the launcher."""

_KILLING = {
    getattr(signal, name)
    for name in ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGPIPE", "SIGALRM",
                 "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGXFSZ", "SIGSYS")
}  # fmt: skip
"""Signals that kill a Python process, without 1 to 3, with which mpiexec itself ends."""


class End(NamedTuple):
    """How a job has ended."""

    status: int
    is_notified: bool = False
    """Whether the job was ended by a signal to the launcher."""


def run(line: Line, environ: Mapping[str, str], grace_s: float = GRACE_S) -> End:
    """Run `line` to its end and return how it ended. After a failure print the traceback of the first failed rank."""
    with Signals() as signals, tempfile.TemporaryDirectory(prefix="malt-") as name:
        folder = Path(name)
        ours = {SESSION_BASE: name, **environ, **line.settings, FAILURE_DIR: name}
        state = JobState(folder, line.fault_tolerant_ranks, line.is_spread) if line.fault_tolerant_ranks else None
        for variable in (JOB_DIR, CONTROL_SERVER):  # of the job that starts this one
            ours.pop(variable, None)
        control_server = ControlServer(folder) if state is not None and line.is_spread else None
        if state is not None:
            ours[JOB_DIR] = name
        if state is not None and control_server is not None:
            ours[CONTROL_SERVER] = control_server.endpoint
            state.report_ended = control_server.report_ended
        departure = Departure(folder, line.ranks, line.is_spread, state is not None, control_server)
        jobs.publish(folder, line.ranks, line.program)
        output = Output(folder, line.ranks, line.display)
        job = Supervised(line.arguments, ours, signals, departure, grace_s, output)
        output.start()
        observer = Observer(folder, line.ranks, line.program, output, line.display.view)
        observer.start()
        failure, is_ending = (partial(failed_with, folder), bool) if state is None else (state.status, state.is_ending)
        status = job.wait(failure, is_ending)
        banners, is_notified = output.close(observer.close()), False
        if control_server is not None:
            control_server.close()
        if state is not None:
            status = status or state.end()
            state.clean()
        elif signals.first is None:
            if line.forwards_signals and _was_killed(folder, status):
                status += 128
            status, is_notified = report_ends_inside_mpi(folder, status)
        if state is not None or status != 0:
            job.kill_leftovers()  # children of failed ranks
        reports = (_notified(folder, signals.first) or first_failure(folder)) if status != 0 else ""
        if not (reports or is_notified):
            say(banners.decode(errors="replace"))
        if status != 0 and state is not None and signals.first is None:
            state.report_early_failures()
        say(reports)
    return End(status, signals.first is not None)


def _was_killed(folder: Path, status: int) -> bool:
    """Whether `status` is the number of a signal that has killed a rank. A rank that exits by itself reports that."""
    return status in _KILLING and failed_with(folder) is None and not ranks_with(folder, "quit")


def first_failure(folder: Path) -> str:
    """Return the text that ends the output: the oldest of the files rank-<r>.txt in `folder`, or "" without one."""
    failures = sorted(folder.glob("rank-*.txt"), key=lambda path: path.stat().st_mtime_ns)
    if not failures:
        return ""
    rank = failures[0].stem.removeprefix("rank-")
    first = f", the first of {len(failures)} ranks," if len(failures) > 1 else ""
    trace = failures[0].read_text(encoding="utf-8", errors="replace").rstrip()
    return f"\nmalt run: rank {rank}{first} failed:\n{trace}\n"


def _notified(folder: Path, number: int | None) -> str:
    """The text that ends the output of a job that a signal has ended: where rank 0 was, or "" without a signal."""
    if number is None or any(folder.glob("rank-*.txt")):
        return ""
    at = folder / "at-0.txt"
    where = f"; {at.read_text(encoding='utf-8', errors='replace')}" if at.exists() else ""
    return f"malt run: ended by {signal.Signals(number).name}{where}\n"
