"""Jobs on several hosts that end well, or fail: of a rank, a host, a link. Who goes on, when, and what is left."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench.hosts import trials
from bench.hosts.lockstep import DEADLINE_S
from bench.hosts.trials import KILL_ALL, Job

AT_ONCE, STARTS_AT_ONCE = 8, 2
"""Jobs at once, each on a network of its own. They wait most of the time, but while they start."""
STEPS, LONG, FEW = 80, 240, 4
"""As many as take 4 s and more; as a rank needs that is started again after 5 s; and those of a start."""
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
    """What happens to a job, what is to come of it, and what happens to it later."""

    strike: Callable[[Any], object] | None = None
    """Brings a failure about, on a network of hosts. None: the job fails as `ending` says, or ends well."""
    after: Callable[[Any], object] | None = None
    """What is done CUT_S later."""
    survivors: Sequence[int] = ()
    """Those that go on where they may. Empty: the job ends."""
    lost: str = ""
    """The host that is not there any more: nobody cleans it."""
    ending: str = "well"
    """That of one rank, another one in each run, of bench.hosts.lockstep."""
    at: str = "a:2,b:2"
    """The hosts of the job, and their ranks."""
    options: Sequence[str] = ("--survive=best-effort",)
    """Those of `malt run`."""
    limit_s: float = math.inf
    """How long the job may take to end after the failure."""
    is_apart: bool = False
    """Whether those that go on are on host b, and `malt run`, which has lost them, ends with an error."""
    steps: int = STEPS
    runs: int = 10


def _kill_rank(network: Any) -> None:
    network.shell("b", KILL_RANK)


def _lose_host(network: Any) -> None:
    network.shell("b", KILL_ALL)


def _cut(network: Any, names: str = "b") -> None:
    for name in names:
        network.link(name, "down")


def _mend(network: Any) -> None:
    network.link("b", "up")


_SHAPES = {"2 hosts of 2 ranks": "a:2,b:2", "4 hosts of 2 ranks": "a:2,b:2,c:2,d:2"}
_ENDINGS = {
    "well": "ends well, from its start", "early": "a rank raises before malt.init", "raises": "a rank raises",
    "killed": "a rank is killed", "deadline": "a rank does not come, from the deadline on",
}  # fmt: skip
STARTS = {
    f"{shape}: {words}": Case(
        ending=ending, at=at, options=(), steps=FEW, runs=30 if ending == "well" else 5,
        survivors=range(2 * (1 + at.count(","))) if ending == "well" else (),
    )
    for shape, at in _SHAPES.items() for ending, words in _ENDINGS.items()
}  # fmt: skip
"""Without --survive, a rank's own doing."""
ENDS = {
    "a host is lost, its daemons killed": Case(_lose_host, lost="b", options=(), limit_s=ENDED_S),
    "a link goes down": Case(_cut, options=(), limit_s=ENDED_S),
}
"""Without --survive."""
_REJOIN = ("--survive=best-effort", "--rejoin")
GOES_ON = {
    "a rank is killed": Case(_kill_rank, survivors=(0, 1, 2)),
    "a host is lost, its daemons killed": Case(_lose_host, survivors=(0, 1), lost="b"),
    "a link is cut for 15 s, and mended": Case(_cut, _mend, survivors=(0, 1)),
    "a rank is killed, and comes back (`--rejoin`)": Case(
        _kill_rank, survivors=(0, 1, 2, 3), options=_REJOIN, steps=LONG
    ),
    "the side of `malt run` is the smaller part": Case(
        partial(_cut, names="a"), survivors=(0, 1), at="b:2,a:2", limit_s=LAUNCHER_S, is_apart=True
    ),
    "all three hosts lose each other": Case(partial(_cut, names="abc"), at="a:1,b:1,c:1", limit_s=LAUNCHER_S),
}
"""With --survive=best-effort."""


class Trial(NamedTuple):
    """Cases, the names of their hosts, and how many jobs there are at once, each on a network of its own."""

    cases: Mapping[str, Case]
    names: str = "abc"
    at_once: int = AT_ONCE


TRIALS = {"starts": Trial(STARTS, "abcd", STARTS_AT_ONCE), "failures": Trial(ENDS), "survival": Trial(GOES_ON)}


def each(trial: Trial, python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs have come to, by case. Cases take turns: a start meets what others have left."""
    chosen = list(trial.cases)[: 2 if quick else None]
    runs = {name: 1 if quick else trial.cases[name].runs for name in chosen}
    order = [(name, run) for run in range(max(runs.values())) for name in chosen if run < runs[name]]
    tried = [partial(_tried, python=python, case=trial.cases[name], run=run, names=trial.names) for name, run in order]
    found = trials.side_by_side(tried, trial.names, trial.at_once)
    return {name: [one for (which, _), one in zip(order, found, strict=True) if which == name] for name in chosen}


def _tried(network: Any, python: str, case: Case, run: int, names: str) -> Found:
    """What a job has come to, and what is left of it on the hosts that are there."""
    ranks = sum(int(one.partition(":")[2]) for one in case.at.split(","))
    job = Job(network, python, case.at, [case.steps, case.ending, run % ranks], *case.options)
    struck = case.strike and _struck(network, job, case)
    status, ended = job.end()
    since = struck or _failed(job, case)
    ends, printed = _elsewhere(network, job, since) if case.is_apart else (job.said("ended"), "")
    is_expected = status is not None and ended - since < case.limit_s
    is_expected &= case.ending == "well" or bool(job.said("failed"))
    is_expected &= (status == 0) == bool(case.survivors and not case.is_apart) and _are(ends, case.survivors)
    times = {"ended_s": ended - since, "status": status}
    if case.survivors:
        times["pause_s"] = trials.pause_s(ends, since)
    found, seconds = trials.until_clean(network, names.replace(case.lost, ""), CLEAN_S, printed)
    errors = "" if is_expected and seconds is not None else job.errors[-3000:]
    lost = trials.left(network, case.lost)
    return {**times, "expected": is_expected, "left": found, "clean_s": seconds, "lost": lost, "errors": errors}


def _struck(network: Any, job: Job, case: Case) -> float:
    """Bring the failure about, and return when."""
    job.await_said("begun", job.ranks)
    since = time.monotonic()
    case.strike(network)
    if case.after is not None:
        time.sleep(max(0.0, since + CUT_S - time.monotonic()))
        case.after(network)
    return since


def _failed(job: Job, case: Case) -> float:
    """When a rank failed, or the deadline of the others came; when the job began, if none did."""
    since = [one["failed"] for one in job.said("failed")] or [job.began]
    return float(since[0]) + (DEADLINE_S if case.ending == "deadline" else 0.0)


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
