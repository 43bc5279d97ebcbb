"""`malt status` and `malt stacks`: a running job of this user, seen from another terminal."""

from __future__ import annotations

from malt.launch.machine.mpi_library import LaunchError
from malt.watch.jobs import RunningJob, age_s, chosen, title
from malt.watch.ranks import look_anew
from malt.watch.stacks import printed, stacks
from malt.watch.table import lines, rows

_PATIENCE_S = 1.0
"""How long ranks may take to answer."""


def _status(number: int | None) -> int:
    job = _chosen(number)
    found = look_anew(job.folder, job.ranks, _PATIENCE_S)
    print(title(job.number, age_s(job), len(found), job.program))
    print(lines(rows(found)), end="")
    return 0


def _stacks(number: int | None) -> int:
    job = _chosen(number)
    print(printed(stacks(job.folder, range(job.ranks))), end="")
    return 0


def _chosen(number: int | None) -> RunningJob:
    try:
        return chosen(number)
    except LookupError as error:
        raise LaunchError(str(error)) from None


COMMANDS = {"status": _status, "stacks": _stacks}
"""The commands, by name. Each takes the number of a job, or None, and returns its exit status."""
