"""Failures of ranks, hosts and links while a job on several hosts runs: who goes on, and when; and what is left."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench.hosts import trials
from bench.hosts.trials import KILL_ALL, Job

RUNS, AT_ONCE = 10, 8
"""Of each case; and how many jobs at once, each on a network of its own. They wait most of the time."""
NAMES = "abc"
STEPS, LONG = 80, 240
"""As many as take 4 s and more; and as a rank needs that is started again after 5 s."""
KILL_RANK = "pkill -KILL -n -f 'runner/[p]rogram.py'"
CUT_S = 15.0
"""Longer than any keepalive."""
LAUNCHER_S = 15.0
"""How long `malt run` may take to end where its side is the smaller part."""
ENDED_S = 10.0
"""How long a job may take to end after a failure."""
CLEAN_S = 60.0
"""How long what is left elsewhere may take to end by itself."""
OTHERS = re.compile(r"may continue on host b, and print to (\S+) there; to end them: ssh b kill -HUP -- -\d+$", re.M)
"""What `malt run` says of those that it has lost."""

Found = dict[str, Any]


class Case(NamedTuple):
    """A failure in a job, what is to come of it, and what happens to it later."""

    strike: Callable[[Any], object]
    """Brings it about, on a network of hosts."""
    after: Callable[[Any], object] = bool
    """What is done CUT_S later."""
    survivors: Sequence[int] = ()
    """Those that go on where they may. Empty: the job ends."""
    lost: str = ""
    """The host that is not there any more: nobody cleans it."""
    ending: str = "well"
    """That of rank 3, of bench.hosts.lockstep."""
    at: str = "a:2,b:2"
    """The hosts of the job, and their ranks."""
    options: Sequence[str] = ("--survive=best-effort",)
    """Those of `malt run`."""
    limit_s: float = math.inf
    """How long the job may take to end after the failure."""
    is_apart: bool = False
    """Whether those that go on are on host b, and `malt run`, which has lost them, ends with an error."""


def _kill_rank(network: Any) -> None:
    network.shell("b", KILL_RANK)


def _lose_host(network: Any) -> None:
    network.shell("b", KILL_ALL)


def _cut(network: Any, names: str = "b") -> None:
    for name in names:
        network.link(name, "down")


def _mend(network: Any) -> None:
    network.link("b", "up")


_ALL_END = {"options": (), "limit_s": ENDED_S}
ENDS = {
    "a rank raises": Case(bool, ending="raises", **_ALL_END),
    "a rank is killed": Case(_kill_rank, **_ALL_END),
    "a host is lost, its daemons killed": Case(_lose_host, lost="b", **_ALL_END),
    "a link goes down": Case(_cut, **_ALL_END),
}
"""Without --survive."""
_REJOIN = ("--survive=best-effort", "--rejoin")
GOES_ON = {
    "a rank is killed": Case(_kill_rank, survivors=(0, 1, 2)),
    "a host is lost, its daemons killed": Case(_lose_host, survivors=(0, 1), lost="b"),
    "a link is cut for 15 s, and mended": Case(_cut, _mend, survivors=(0, 1)),
    "a rank is killed, and comes back (`--rejoin`)": Case(_kill_rank, survivors=(0, 1, 2, 3), options=_REJOIN),
    "the side of `malt run` is the smaller part": Case(
        partial(_cut, names="a"), survivors=(0, 1), at="b:2,a:2", limit_s=LAUNCHER_S, is_apart=True
    ),
    "all three hosts lose each other": Case(partial(_cut, names="abc"), at="a:1,b:1,c:1", limit_s=LAUNCHER_S),
}
"""With --survive=best-effort."""


def failures(python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs without --survive have come to, by case."""
    return _each(ENDS, python, quick)


def survival(python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs with --survive=best-effort have come to, by case."""
    return _each(GOES_ON, python, quick)


def _each(cases: Mapping[str, Case], python: str, quick: bool) -> dict[str, list[Found]]:
    """The runs of each case. The cases that last longest come last in their table, and begin first."""
    runs, names = (1, list(cases)[:1]) if quick else (RUNS, list(cases))
    order = [name for name in reversed(names) for _ in range(runs)]
    found = trials.side_by_side([partial(_tried, python=python, case=cases[name]) for name in order], NAMES, AT_ONCE)
    return {name: [one for which, one in zip(order, found, strict=True) if which == name] for name in names}


def _tried(network: Any, python: str, case: Case) -> Found:
    """What a job has come to, and what is left of it on the hosts that are there."""
    words = [LONG if "--rejoin" in case.options else STEPS, case.ending, 3]
    job = Job(network, python, case.at, words, *case.options)
    job.await_said("begun", job.ranks)
    since = _struck(network, job, case)
    status, ended = job.end()
    ends, printed = _elsewhere(network, job, since) if case.is_apart else (job.said("ended"), "")
    is_expected = status is not None and ended - since < case.limit_s
    is_expected &= (status == 0) == bool(case.survivors and not case.is_apart) and _are(ends, case.survivors)
    times = {"ended_s": ended - since, "status": status}
    if case.survivors:
        times["pause_s"] = trials.pause_s(ends, since)
    found, seconds = trials.until_clean(network, NAMES.replace(case.lost, ""), CLEAN_S, printed)
    errors = "" if is_expected and seconds is not None else job.errors[-3000:]
    lost = trials.left(network, case.lost)
    return {**times, "expected": is_expected, "left": found, "clean_s": seconds, "lost": lost, "errors": errors}


def _struck(network: Any, job: Job, case: Case) -> float:
    """When the failure came."""
    if case.ending != "well":
        job.await_said("failed", 1)
        return float(job.said("failed")[0]["failed"])
    since = time.monotonic()
    case.strike(network)
    if case.after is not bool:
        time.sleep(max(0.0, since + CUT_S - time.monotonic()))
        case.after(network)
    return since


def _elsewhere(network: Any, job: Job, since: float) -> tuple[list[Found], str]:
    """The last lines of ranks that go on without `malt run`, and the file that they are in, which is to stay."""
    line = OTHERS.search(job.errors)
    ends: list[Found] = []
    while line is not None and len(ends) < 2 and time.monotonic() < since + trials.LONGEST_S:
        time.sleep(0.5)
        ends = [one for one in trials.spoken(network.shell("b", f"cat {line[1]}")) if "ended" in one]
    return ends, line[1].rpartition("/")[0] if line is not None else ""


def _are(ends: Sequence[Found], ranks: Sequence[int]) -> bool:
    """Whether these ranks, and no others, have ended well, and none of them counts on others."""
    return sorted(one["rank"] for one in ends) == [*ranks] and all(one["alive"] == [*ranks] for one in ends)
