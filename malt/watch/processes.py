"""The processes of the ranks of a job, by what is in its folder: those that have started, and those that have ended."""

from __future__ import annotations

from dstorm.membership.processes import Process, has_ended, process
from malt.runner.events import History, Kind, Stream


def processes(history: History) -> dict[int, Process]:
    """Return the processes of the ranks that have started, as far as `history` has that. Local."""
    return {rank: process(*map(int, text.split())) for rank, text in history.texts(Kind.STARTED).items()}


def ended(reports: Stream) -> set[int]:
    """Return the ranks of this host whose processes have ended. All that they have reported is read by then. Local.

    So no rank is seen to have ended whose last report is missing; nor one that was started again in between.
    """
    before = {rank: one for rank, one in processes(reports.read()).items() if has_ended(one)}
    return {rank for rank, one in processes(reports.read()).items() if before.get(rank) == one}
