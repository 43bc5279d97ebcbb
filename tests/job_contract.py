"""What every launcher promises of the events of a job (malt/runner/events.py), in whatever order they come.

`launcher(job)` makes one. It has `take(event)`, `look(ended, at)`, the status of the job at that time or None while it
runs, and `end(ended, at)`, its status and what is said in the end. `ended`: the ranks of its host whose processes have.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from malt.runner.events import Event, Kind


class Job(NamedTuple):
    """What was reported of a job, and how it has ended.

    Each channel is what one rank and its process have done, in that order: the time in milliseconds, the kind of event,
    its text after `=`, and after `@` the rank of which it is, where that is another. `end` is the end of a process of
    the launcher's host, which comes after all that it has reported. Channels come in any order.
    """

    channels: tuple[str, ...]
    status: int
    says: str = ""
    mpiexec: int = 0
    """The status of mpiexec."""
    is_spread: bool = False


def check_job(job, launcher, orders):
    """The status and what is said in the end are the same in that many orders, as events have times.

    What the launcher finds meanwhile is that, or that the job still runs; or 1, where it has not heard so far with
    which status the first process has failed. The first order is that in which the channels are given.
    """
    found_early = {1} if any(re.search(" (ended|exited)=", channel) for channel in job.channels) else set()
    for seed in range(orders):
        order = random.Random(seed)
        end, found = _played(job, launcher(job), order.choice if seed else min)
        assert end == (job.status, job.says), seed
        assert set(found) <= {None, job.status} | found_early, seed


_STEP = re.compile(r"(\d+) ([a-z ]+)(?:=(.*?)(?:@(-?\d+))?)?", re.DOTALL)


def _steps(rank, channel):
    """The events of a channel, and None for each end of a process."""
    found = []
    for word in channel.split("; "):
        at, kind, text, of = _STEP.fullmatch(word).groups() if word != "end" else [None] * 4
        found.append(at and Event(Kind(kind), int(of or rank), text or "", 1000 * int(at)))
    return found


def _played(job, launcher, choose):
    """What a launcher says of the whole job, and the statuses that it finds on the way."""
    ended, found, now = set(), [], 0
    left = {rank: _steps(rank, channel) for rank, channel in enumerate(job.channels)}
    while any(left.values()):
        rank = choose([rank for rank in left if left[rank]])
        one = left[rank].pop(0)
        if one is None:
            ended.add(rank)
        else:
            launcher.take(one)
            now = max(now, one.at)
            if one.kind is Kind.STARTED:
                ended.discard(rank)
        found.append(launcher.look(ended, now))
    return launcher.end(ended, now), found
