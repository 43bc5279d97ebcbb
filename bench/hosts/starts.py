"""Starts of jobs on several hosts: whether one hangs, how soon it ends, and what is left on the hosts."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.hosts import trials
from bench.hosts.lockstep import DEADLINE_S
from bench.hosts.trials import Job

SHAPES = {"2 hosts of 2 ranks": "ab", "4 hosts of 2 ranks": "abcd"}
RANKS = 2
"""Of each host."""
IN_TURNS = ("well", "early", "well", "raises", "well", "killed", "well", "deadline", "well", "well")
"""The endings of the starts, one after the other."""
ROUNDS, QUICK = 5, ("well", "early")
STEPS = 4
AT_ONCE = 2
"""Jobs on networks of their own."""
CLEAN_S = 60.0
"""How long to look whether what is left goes."""


def starts(python: str, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """What each start has come to, by the hosts of the job."""
    shapes = list(SHAPES)[: 1 if quick else None]
    endings = QUICK if quick else IN_TURNS * ROUNDS
    found = {}
    for shape in shapes:
        names = SHAPES[shape]
        tried = [
            partial(_started, python=python, names=names, ending=one, rank=number % (RANKS * len(names)))
            for number, one in enumerate(endings)
        ]
        found[shape] = trials.side_by_side(tried, names, AT_ONCE)
    return found


def _started(network: Any, python: str, names: str, ending: str, rank: int) -> dict[str, Any]:
    """A start of which one rank ends so. `seconds`: from the start, or from the failure or the deadline, to the end."""
    job = Job(network, python, ",".join(f"{name}:{RANKS}" for name in names), [STEPS, ending, rank])
    status, ended = job.end()
    failures = [one["failed"] for one in job.said("failed")]
    since = (failures or [job.began])[0] + (DEADLINE_S if ending == "deadline" else 0.0)
    found, seconds = trials.until_clean(network, names, CLEAN_S)
    whole = len(job.said("ended")) == RANKS * len(names)
    is_expected = status == 0 and whole if ending == "well" else bool(failures) and status not in (0, None)
    return {
        "ending": ending, "status": status, "seconds": ended - since, "expected": is_expected,
        "left": found, "clean_s": seconds, "errors": "" if is_expected and not found else job.errors[-2000:],
    }  # fmt: skip
