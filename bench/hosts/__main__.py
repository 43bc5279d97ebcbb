"""Measures exchanges and trainings on hosts that it makes of namespaces, beside MPI's own calls.

    python -m bench.hosts [--mpi PYTHON ...] [--only PART ...] [--quick] [--json docs/hosts.json]

PYTHON: the interpreter of an environment, one for each MPI; by default this one. It needs root, iproute2 and sshd, and
says so where it cannot run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import datasets, document
from bench.harness.document import Measured, say
from bench.hosts import failures, page, planning, ways
from bench.hosts.training import QUICK_TARGET, Plan
from bench.hosts.trials import ROOT, linked_hosts, missing_hosts, report, sharing_cores

TRANSFERS, LATE = ("small",), ("far_held", "far_small", "far_model")
RATE_MBIT, DELAY_MS, LOSS_PERCENT = 100, 20, 1
LINK, QUICK_LINK = Plan(ways.LINK, 5, 1.0, 40), Plan(ways.LINK[:3:2], 1, 0.5, 12, QUICK_TARGET)
FAR, QUICK_FAR = Plan(ways.FAR, 3, 11.0, 32), Plan(ways.FAR[::2], 1, 1.0, 6, QUICK_TARGET)
_FAMILY = "from malt.launch.machine.mpi_library import bound_library; print(bound_library().family)"

Lines = list[dict[str, Any]]


def trained(plan: Plan, python: str, **link: int) -> Lines:
    """The runs of a plan, on two ranks of each of two hosts."""
    with linked_hosts("ab", **link) as network:
        lines: Lines = report(network, python, 2, "bench.hosts.training", plan.as_json(), hosts="ab")
        return lines


def transfers(python: str, quick: bool) -> dict[str, Any]:
    """The seconds of exchanges, by part and name."""
    found = {}
    for parts, delay_ms in (TRANSFERS, 0), (LATE, DELAY_MS):
        with linked_hosts("ab", delay_ms=delay_ms) as network:
            some = parts[:1] if quick else parts
            found |= report(network, python, 1, "bench.hosts.transfers", *some, hosts="ab")
    return found


def link(python: str, quick: bool) -> Lines:
    """Trainings over a link of a low rate."""
    return trained(QUICK_LINK if quick else LINK, python, mbit=RATE_MBIT)


def far(python: str, quick: bool) -> Lines:
    """Trainings where a round trip takes long, and packets are lost."""
    return trained(QUICK_FAR if quick else FAR, python, delay_ms=DELAY_MS, loss_percent=LOSS_PERCENT)


def planned(python: str, quick: bool) -> Lines:
    """Trainings over links of several rates, and what simulated ranks predict of them."""
    plan = planning.QUICK if quick else planning.PLAN
    found = []
    for mbit in planning.MBIT:
        say(f"{mbit} Mbit/s")
        found += planning.compared(trained(plan, python, mbit=mbit), mbit, plan)
    return found


MEASURED: dict[str, Callable[[str, bool], Any]] = {
    "transfers": transfers, "link": link, "far": far, "planned": planned, "survival": failures.survival,
}  # fmt: skip
WITHOUT_DATA = {"transfers", "survival"}


def _family(python: str) -> str:
    """The MPI of an environment, such as "openmpi"."""
    return subprocess.run([python, "-c", _FAMILY], check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def part(name: str, options: Namespace, found: Measured) -> Measured:
    """What is measured with each MPI, beside the other parts of these."""
    if not (datasets.RCV1.exists() or name in WITHOUT_DATA):
        sys.exit(f"bench.hosts is skipped: {datasets.NO_RCV1}")
    made = {}
    with sharing_cores():
        for python in options.mpi:
            say(f"{name}, {python}")
            family = _family(python)
            made[family] = {**found.get(family, {}), name: MEASURED[name](python, options.scale == "quick")}
    anonymous: Measured = json.loads(without_root(made))
    return anonymous


PARTS: dict[str, document.Part] = {name: partial(part, name) for name in MEASURED}


def without_root(found: Measured) -> str:
    """What has been found as JSON, in which paths start at the root of the project. Pure."""
    return json.dumps(found).replace(f"{ROOT}/", "")


def possible(_: Namespace) -> Measured:
    """Nothing, where hosts can be made here. SystemExit: they cannot, and why."""
    if why := missing_hosts():
        sys.exit(f"bench.hosts is skipped: {why}")
    return {}


def add_options(parser: ArgumentParser) -> None:
    """Add --mpi."""
    parser.add_argument("--mpi", nargs="+", default=[sys.executable], metavar="PYTHON")


if __name__ == "__main__":
    document.measure("bench.hosts", str(__doc__), possible, page.tables, add_options, PARTS, scales=("whole", "quick"))
