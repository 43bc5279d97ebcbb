"""Jobs on several hosts of which a rank, a host or a link fails: who goes on, when, and what is left."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench.hosts import trials
from bench.hosts.trials import KILL_ALL, Job

AT_ONCE, RUNS = 8, 10
"""Jobs at once, each on a network of its own: they wait most of the time. Runs of each case."""
STEPS, LONG = 80, 240
"""As many as take 4 s and more; as a rank needs that is started again after 5 s."""
NAMES = "abc"
KILL_RANK = "pkill -KILL -n -f 'runner/[p]rogram.py'"
CUT_S = 15.0
"""Longer than any keepalive."""
LAUNCHER_S = 15.0
"""How long `malt run` may take to end where its side is the smaller part."""
CLEAN_S = 60.0
"""How long what is left elsewhere may take to end by itself."""
OTHERS = re.compile(r"may continue on host b, and print to (\S+) there; to end them: ssh b kill -HUP -- -\d+$", re.M)
"""What `malt run` says of those that it has lost."""

Found = dict[str, Any]


class Case(NamedTuple):
    """What happens to a job, what is to come of it, and what happens to it later."""

    strike: Callable[[Any], object]
    """Brings a failure about, on a network of hosts."""
    after: Callable[[Any], object] | None = None
    """What is done CUT_S later."""
    survivors: Sequence[int] = ()
    """Those that go on. Empty: the job ends."""
    lost: str = ""
    """The host that is not there any more: nobody cleans it."""
    at: str = "a:2,b:2"
    """The hosts of the job, and their ranks."""
    options: Sequence[str] = ("--survive=best-effort",)
    """Those of `malt run`."""
    limit_s: float = math.inf
    """How long the job may take to end after the failure."""
    is_apart: bool = False
    """Whether those that go on are on host b, and `malt run`, which has lost them, ends with an error."""
    steps: int = STEPS


def _kill_rank(network: Any) -> None:
    network.shell("b", KILL_RANK)


def _lose_host(network: Any) -> None:
    network.shell("b", KILL_ALL)


def _cut(network: Any, names: str = "b") -> None:
    for name in names:
        network.link(name, "down")


def _mend(network: Any) -> None:
    network.link("b", "up")


CASES: Mapping[str, Case] = {
    "a rank is killed": Case(_kill_rank, survivors=(0, 1, 2)),
    "a host is lost, its daemons killed": Case(_lose_host, survivors=(0, 1), lost="b"),
    "a link is cut for 15 s, and mended": Case(_cut, _mend, survivors=(0, 1)),
    "a rank is killed, and comes back (`--rejoin`)": Case(
        _kill_rank, survivors=(0, 1, 2, 3), options=("--survive=best-effort", "--rejoin"), steps=LONG
    ),
    "the side of `malt run` is the smaller part": Case(
        partial(_cut, names="a"), survivors=(0, 1), at="b:2,a:2", limit_s=LAUNCHER_S, is_apart=True
    ),
    "all three hosts lose each other": Case(partial(_cut, names="abc"), at="a:1,b:1,c:1", limit_s=LAUNCHER_S),
}


def survival(python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs have come to, by case. Cases take turns: a start meets what others have left."""
    chosen = list(CASES)[: 2 if quick else None]
    order = [name for _ in range(1 if quick else RUNS) for name in chosen]
    tried = [partial(_tried, python=python, case=CASES[name]) for name in order]
    found = trials.side_by_side(tried, NAMES, AT_ONCE)
    return {name: [one for which, one in zip(order, found, strict=True) if which == name] for name in chosen}


def _tried(network: Any, python: str, case: Case) -> Found:
    """What a job has come to, and what is left of it on the hosts that are there."""
    job = Job(network, python, case.at, case.steps, *case.options)
    since = _struck(network, job, case)
    status, ended = job.end()
    ends, printed = _elsewhere(network, job, since) if case.is_apart else (job.said("ended"), "")
    is_expected = status is not None and ended - since < case.limit_s and _are(ends, case.survivors)
    is_expected &= (status == 0) == bool(case.survivors and not case.is_apart)
    times = {"ended_s": ended - since, "status": status}
    if case.survivors:
        times["pause_s"] = trials.pause_s(ends, since)
    found, seconds = trials.until_clean(network, NAMES.replace(case.lost, ""), CLEAN_S, printed)
    errors = "" if is_expected and seconds is not None else job.errors[-3000:]
    return {**times, "expected": is_expected, "left": found, "clean_s": seconds, "errors": errors}


def _struck(network: Any, job: Job, case: Case) -> float:
    """Bring the failure about, and return when."""
    job.await_said("begun", job.ranks)
    since = time.monotonic()
    case.strike(network)
    if case.after is not None:
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
