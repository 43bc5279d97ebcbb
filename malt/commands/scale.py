"""`malt scale`: another number of ranks for a running job that was started with malt run --elastic."""

from __future__ import annotations

from dstorm.words import count
from malt.launch.machine.mpi_library import LaunchError
from malt.runner import roster
from malt.watch.jobs import chosen


def check(bounds: tuple[int, int], ranks: int) -> None:
    """Check that a job may begin with so many ranks. Pure. LaunchError: it may not."""
    least, most = bounds
    if not least <= ranks <= most:
        raise LaunchError(f"--elastic {least}:{most}: the job would begin with {count(ranks, 'rank')}: "
                          f"-n {least} to {most}")  # fmt: skip


def main(number: int | None, ranks: int) -> int:
    """Let the job of that number, or the only one, have so many ranks. Returns 0. Local. LaunchError: it cannot."""
    try:
        job = chosen(number)
        with roster.changing(job.folder) as found:
            before = found.size
            found.scale(ranks)
    except (LookupError, ValueError, OSError) as error:
        raise LaunchError(str(error)) from None
    print(f"job {job.number}: {count(ranks, 'rank')}, {before} before")
    return 0
