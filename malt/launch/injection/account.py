"""The account of faults at the end of a job: the ranks that were struck, and the outcome of the job. Pure."""

from __future__ import annotations

import math

from malt.launch.injection.schedule import Schedule, Strike

_MOST = 20
"""The strikes that are named. Of more, the others are counted."""


def account(schedule: Schedule, status: int) -> str:
    """The line. `status`: that of the job."""
    faults, strikes = schedule.faults, schedule.strikes
    if not strikes:
        return f"malt run: --inject {faults} struck no rank: {_why_none(schedule)}\n"
    words = [*map(_named, strikes[:_MOST])]
    words += [f"and {len(strikes) - _MOST} more"] if len(strikes) > _MOST else []
    words += [f"{schedule.left_out} times nobody, as fewer than two ranks ran"] if schedule.left_out else []
    slowed = {one.rank for one in strikes if one.kind == "slow"}
    words += [f"rank {rank} never, as it had no session on this host" for rank, _ in faults.slow if rank not in slowed]
    survived = {1: "it", 2: "both"}.get(len(strikes), f"all {len(strikes)}")
    end = f"the job survived {survived}" if status == 0 else f"the job ended with status {status}"
    return f"malt run: struck: {', '.join(words)}; {end} (--inject {faults})\n"


def _named(one: Strike) -> str:
    if one.kind == "slow":
        return f"rank {one.rank} slowed {one.extent:g} times"
    if one.kind == "kill":
        return f"rank {one.rank} killed after {one.at_s:.1f} s"
    how = "until it was ended" if one.is_ended else f"for {one.extent:.1f} s"
    return f"rank {one.rank} stopped {how} after {one.at_s:.1f} s"


def _why_none(schedule: Schedule) -> str:
    if schedule.session_s is None:
        return "no rank on this host has begun a session"
    if schedule.left_out:
        return "fewer than two ranks ran, and the last one is left alone"
    if schedule.first_s == math.inf:
        return "those to be slowed had no session on this host"
    return f"the session lasted {schedule.session_s:.1f} s, and the first was due after {schedule.first_s:.1f} s"
