"""Failures of ranks, hosts and links while a job on several hosts runs: who goes on, and when; and what is left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
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
OTHERS = re.compile(r"may continue on host b, and print to (\S+) there; to end them: ssh b kill -- -\d+$", re.M)
"""What `malt run` says of those that it has lost."""

Found = dict[str, Any]


class Case(NamedTuple):
    """A failure on host b of a job on hosts a and b of 2 ranks each."""

    strike: Callable[[Any], object]
    """Brings it about, on a network of hosts."""
    after: Callable[[Any], object] = bool
    """What is done CUT_S later."""
    survivors: Sequence[int] = (0, 1, 2)
    """Those that go on where they may."""
    is_lost: bool = False
    """Whether b is not there any more: nobody cleans it."""
    ending: str = "well"
    """That of rank 3, of bench.hosts.lockstep."""
    rejoins: bool = False
    """Whether it is started again."""


def _kill_rank(network: Any) -> None:
    network.shell("b", KILL_RANK)


def _lose_host(network: Any) -> None:
    network.shell("b", KILL_ALL)


def _cut(network: Any, names: str = "b") -> None:
    for name in names:
        network.link(name, "down")


def _mend(network: Any) -> None:
    network.link("b", "up")


ENDS = {
    "a rank raises": Case(bool, ending="raises"),
    "a rank is killed": Case(_kill_rank),
    "a host is lost, its daemons killed": Case(_lose_host, is_lost=True),
    "a link goes down": Case(_cut),
}
"""Without --survive."""
GOES_ON = {
    "a rank is killed": Case(_kill_rank),
    "a host is lost, its daemons killed": Case(_lose_host, survivors=(0, 1), is_lost=True),
    "a link is cut for 15 s, and mended": Case(_cut, _mend, survivors=(0, 1)),
    "a rank is killed, and comes back (`--rejoin`)": Case(_kill_rank, survivors=(0, 1, 2, 3), rejoins=True),
}
"""With --survive=best-effort."""


def failures(python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs without --survive have come to, by case."""
    tried = {name: partial(_ends, python=python, case=case) for name, case in ENDS.items()}
    return _each(dict(list(tried.items())[:1]) if quick else tried, quick)


def survival(python: str, quick: bool) -> dict[str, list[Found]]:
    """What jobs with --survive=best-effort have come to, by case."""
    tried: dict[str, trials.Trial] = {
        name: partial(_goes_on, python=python, case=case) for name, case in GOES_ON.items()
    }
    tried["the side of `malt run` is the smaller part"] = partial(_is_smaller, python=python)
    tried["all three hosts lose each other"] = partial(_are_apart, python=python)
    return _each(dict(list(tried.items())[:1]) if quick else tried, quick)


def _each(tried: dict[str, Any], quick: bool) -> dict[str, list[Found]]:
    """The runs of each case. The cases that last longest come last in their table, and begin first."""
    runs = 1 if quick else RUNS
    order = [name for name in reversed(tried) for _ in range(runs)]
    found = trials.side_by_side([tried[name] for name in order], NAMES, AT_ONCE)
    return {name: [one for which, one in zip(order, found, strict=True) if which == name] for name in tried}


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


def _ends(network: Any, python: str, case: Case) -> Found:
    """A job that ends with a failure."""
    job = Job(network, python, "a:2,b:2", [STEPS, case.ending, 3])
    job.await_said("begun", 4)
    since = _struck(network, job, case)
    status, ended = job.end()
    is_expected = status not in (0, None) and ended - since < ENDED_S
    return _concluded(network, job, is_expected, case, {"ended_s": ended - since, "status": status})


def _goes_on(network: Any, python: str, case: Case) -> Found:
    """A job of which the survivors of a failure go on."""
    steps, options = (LONG, ["--rejoin"]) if case.rejoins else (STEPS, [])
    job = Job(network, python, "a:2,b:2", [steps, case.ending, 3], "--survive=best-effort", *options)
    job.await_said("begun", 4)
    since = _struck(network, job, case)
    status, ended = job.end()
    ends = job.said("ended")
    is_expected = status == 0 and _are(ends, case.survivors)
    times = {"pause_s": trials.pause_s(ends, since), "ended_s": ended - since, "status": status}
    return _concluded(network, job, is_expected, case, times)


def _is_smaller(network: Any, python: str) -> Found:
    """A job whose launcher's host is cut off: ranks 0 and 1 are on b, and go on."""
    job = Job(network, python, "b:2,a:2", [STEPS, "well", 0], "--survive=best-effort")
    job.await_said("begun", 4)
    since = time.monotonic()
    _cut(network, "a")
    status, ended = job.end()
    line = OTHERS.search(job.errors)
    ends: list[Found] = []
    limit = since + trials.LONGEST_S
    while line is not None and len(ends) < 2 and time.monotonic() < limit:
        time.sleep(0.5)
        ends = [one for one in trials.spoken(network.shell("b", f"cat {line[1]}")) if "ended" in one]
    is_expected = status not in (0, None) and ended - since < LAUNCHER_S and _are(ends, (0, 1))
    times = {"pause_s": trials.pause_s(ends, since), "ended_s": ended - since, "status": status}
    printed = line[1].rpartition("/")[0] if line is not None else ""
    return _concluded(network, job, is_expected, Case(_cut), times, printed)


def _are_apart(network: Any, python: str) -> Found:
    """A job of which no part has a majority any more: all end."""
    job = Job(network, python, "a:1,b:1,c:1", [STEPS, "well", 0], "--survive=best-effort")
    job.await_said("begun", 3)
    since = time.monotonic()
    _cut(network, "abc")
    status, ended = job.end()
    is_expected = status not in (0, None) and ended - since < LAUNCHER_S
    return _concluded(network, job, is_expected, Case(_cut), {"ended_s": ended - since, "status": status})


def _are(ends: Sequence[Found], ranks: Sequence[int]) -> bool:
    """Whether these ranks, and no others, have ended well, and none of them counts on others."""
    return sorted(one["rank"] for one in ends) == [*ranks] and all(one["alive"] == [*ranks] for one in ends)


def _concluded(network: Any, job: Job, is_expected: bool, case: Case, times: Found, printed: str = "") -> Found:
    """The result of a job that has ended: with what is left, on hosts that are there. `printed`: what is to stay."""
    there = NAMES.replace("b", "") if case.is_lost else NAMES
    found, seconds = trials.until_clean(network, there, CLEAN_S, printed)
    lost = trials.left(network, "b") if case.is_lost else {}
    errors = "" if is_expected and seconds is not None else job.errors[-3000:]
    return {**times, "expected": is_expected, "left": found, "clean_s": seconds, "lost": lost, "errors": errors}
