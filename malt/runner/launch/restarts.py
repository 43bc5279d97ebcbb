"""Restarts: a job that failed as a whole is run again (`malt run --restarts`)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from malt.runner.launch import job
from malt.runner.launch.command import RESTART, Line
from malt.runner.launch.hosts.remote import RemoteHosts
from malt.runner.launch.reports.job_state import BAD_INPUT
from malt.runner.launch.streams.display import say
from malt.runner.leaving import GRACE_S


def run(
    compose: Callable[[Mapping[str, str]], Line], environ: Mapping[str, str], restarts: int,
    grace_s: float = GRACE_S, remote: RemoteHosts | None = None,
) -> int:  # fmt: skip
    """Run the line that compose(environ) returns, and again after a failure, at most `restarts` times.

    Returns the status of the last run. A job that a signal to the launcher has ended is not run again, nor one that
    ended with BAD_INPUT, nor one that has only lost what it printed, nor one whose ranks may go on elsewhere: both
    would write the same files. `remote`: the other hosts. The variable RESTART holds the number of the restart, from 1.
    """
    try:
        for attempt in range(restarts + 1):
            again = {**environ, RESTART: str(attempt)} if attempt else environ
            end = job.run(compose(again), again, grace_s, remote)
            is_final = end.is_notified or end.goes_on or end.is_done
            if end.status in (0, BAD_INPUT) or is_final or attempt == restarts:
                break
            say(f"malt run: the job ended with status {end.status}: restart {attempt + 1} of {restarts}\n")
        return end.status
    except KeyboardInterrupt:  # between two runs; during a run Signals handles it
        return 128 + signal.SIGINT
