"""The jobs of this user that run on this machine: each has a folder, whose file `job` says what it is."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dstorm.membership.processes import has_ended, process, this_process
from dstorm.waits.stopwatch import uptime_s
from dstorm.words import count
from malt.runner import reporting

FILE: Final = "job"
"""The file in the folder of a job that says what it is."""
_MOST_SHOWN = 100


class RunningJob(NamedTuple):
    """A job that runs."""

    folder: Path
    number: int
    """The number of the launcher's process, by which users name the job."""
    ranks: int
    program: str
    """The beginning of PROGRAM ARGS..., on one line."""
    started: int
    """The start of that process, in clock ticks after the start of the system."""


def publish(folder: Path, ranks: int, program: Sequence[str]) -> None:
    """Write down which job `folder` belongs to. The launcher calls it. OSError: a full disk, say. Local."""
    own, shown = this_process(), beginning(program)
    reporting.write(folder / FILE, json.dumps([own.number, own.started, ranks, shown]))


def beginning(program: Sequence[str]) -> str:
    """The beginning of PROGRAM ARGS..., on one line. Pure."""
    words = " ".join(" ".join(program).split())  # -c takes a text of many lines
    return words.encode(errors="replace").decode()[:_MOST_SHOWN]


def title(number: int, age_s: float, ranks: int, program: str) -> str:
    """The line above the table of a job: its number, its age, its ranks and its program. Pure."""
    return f"job {number}, {age_s:.0f} s: {count(ranks, 'rank')} of {program}"


def age_s(job: RunningJob) -> float:
    """For how many seconds its launcher has run. Local."""
    return _since(job.started)


def launched_s() -> float:
    """For how many seconds the launcher of this rank has run. Local.

    Where there is none on this host, it is this process for which the answer is.
    """
    folder = reporting.folder()
    job = None if folder is None else _job(Path(folder))
    started = this_process().started if job is None else job.started
    return _since(started) if started >= 0 else 0.0  # negative: the system does not say


def running() -> list[RunningJob]:
    """The jobs of this user that run on this machine, the newest last. Local.

    A folder of another user, or one that others may write to, is no job.
    """
    found = [_job(path) for path in Path(_place()).glob("malt-*") if _is_own(path)]
    return sorted((job for job in found if job is not None), key=lambda job: job.started)


def chosen(number: int | None) -> RunningJob:
    """The job of that number; without one the only job that runs. Local. LookupError: there is none, or several."""
    jobs = [job for job in running() if number in (None, job.number)]
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        which = f"no job {number} of this user runs" if number is not None else "no job of this user runs"
        raise LookupError(f"{which} on this machine, with its folder in {_place()}")
    listed = "".join(f"\n  {job.number}  {count(job.ranks, 'rank')}  {job.program}" for job in jobs)
    raise LookupError(f"{len(jobs)} jobs are running: select one by its number{listed}")


def _place() -> str:
    import tempfile  # ranks need none

    return tempfile.gettempdir()


def _since(started: int) -> float:
    """The seconds since a moment in clock ticks after the start of the system. Local."""
    return uptime_s() - started / os.sysconf("SC_CLK_TCK")


def _is_own(path: Path) -> bool:
    """Return whether `path` is a folder of this user, closed to all others."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return False


def _job(folder: Path) -> RunningJob | None:
    """The job of a folder. None: it has none, or it has ended."""
    try:
        number, started, ranks, program = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None
    if not (all(isinstance(one, int) for one in (number, started, ranks)) and isinstance(program, str)):
        return None  # it is another program's
    return None if has_ended(process(number, started)) else RunningJob(folder, number, ranks, program, started)
