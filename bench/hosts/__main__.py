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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import document
from bench.document import say
from bench.hosts import failures, page, planning, programs, starts, training, ways
from bench.hosts.trials import own_cores, sharing_cores
from bench.svm import task

ROOT = Path(__file__).parents[2]
TRANSFERS, LATE = ("small", "stream", "landing"), ("far_held", "far_small", "far_model")
RATE_MBIT, DELAY_MS, LOSS_PERCENT = 100, 20, 1
_LIMIT_S = 300
_FAMILY = "from malt.launch.mpi_library import bound_library; print(bound_library().family)"

Lines = list[dict[str, Any]]


def _on_hosts(
    python: str, names: str, ranks: int, words: Sequence[str], mbit: int = 0, delay_ms: int = 0, loss_percent: int = 0
) -> Lines:  # fmt: skip
    """What a program prints as JSON on so many ranks of each host. RuntimeError: the job failed.

    `mbit`: of the link of each host. `delay_ms`, `loss_percent`: of the way to the last host, and back. 0: as it is.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from host_network import HostNetwork  # with pytest, as tests use it

    network = HostNetwork(names)
    try:
        for name in names if mbit else "":
            network.rate(name, mbit)
        if delay_ms:
            network.late(names[-1], delay_ms, loss_percent)
        own_cores(network)
        hosts = ",".join(f"{name}:{ranks}" for name in names)
        job = ["-m", "malt", "run", "-n", str(ranks * len(names)), "--hosts", hosts, "-m", *words]
        done = network.run(names[0], python, *job, folder=ROOT, limit_s=_LIMIT_S)
    finally:
        network.close()
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _trained(python: str, names: str, plan: training.Plan, **network: int) -> Lines:
    """The runs of a plan, on two ranks of each host."""
    return _on_hosts(python, names, 2, ("bench.hosts.training", json.dumps(plan._asdict())), **network)


def transfers(python: str, quick: bool) -> dict[str, Any]:
    """The seconds of exchanges, by part and name."""
    near, late = (TRANSFERS[:1], LATE[:1]) if quick else (TRANSFERS, LATE)
    lines = _on_hosts(python, "ab", 1, ("bench.hosts.transfers", *near))
    lines += _on_hosts(python, "ab", 1, ("bench.hosts.transfers", *late), delay_ms=DELAY_MS)
    return {name: times for line in lines for name, times in line.items()}


def link(python: str, quick: bool) -> Lines:
    """Trainings over a link of a low rate."""
    plan = training.Plan(ways.LINK, 5, 1.0, 40)
    if quick:
        plan = training.Plan(ways.LINK[:3:2], 1, 0.5, 12, training.QUICK_TARGET)
    return _trained(python, "ab", plan, mbit=RATE_MBIT)


def far(python: str, quick: bool) -> Lines:
    """Trainings where a round trip takes long, and packets are lost."""
    plan = training.Plan(ways.FAR, 3, 11.0, 32)
    if quick:
        plan = training.Plan(ways.FAR[::2], 1, 1.0, 6, training.QUICK_TARGET)
    return _trained(python, "ab", plan, delay_ms=DELAY_MS, loss_percent=LOSS_PERCENT)


def graphs(python: str, quick: bool) -> dict[str, Lines]:
    """Trainings whose bytes are compared, by the number of hosts."""
    plan = training.Plan(ways.GRAPHS, 1, 0.0, 60)
    if quick:
        plan = training.Plan(ways.GRAPHS, 1, 0.0, 12, training.QUICK_TARGET)
    return {str(len(names)): _trained(python, names, plan) for names in ("ab", "abcd")}


def planned(python: str, quick: bool) -> Lines:
    """Trainings over links of several rates, and what simulated ranks predict of them."""
    plan = planning.QUICK if quick else planning.PLAN
    words = "bench.hosts.planned", json.dumps(plan._asdict())
    found = []
    for mbit in planning.MBIT:
        say(f"{mbit} Mbit/s")
        found += planning.compared(_on_hosts(python, "ab", 2, words, mbit=mbit), mbit, plan)
    return found


_MEASURED = (
    transfers,
    link,
    far,
    graphs,
    planned,
    programs.programs,
    starts.starts,
    failures.failures,
    failures.survival,
)
PARTS: dict[str, Callable[[str, bool], Any]] = {one.__name__: one for one in _MEASURED}
WITHOUT_DATA = {"transfers", "starts", "failures", "survival"}


def _family(python: str) -> str:
    """The MPI of an environment, such as "openmpi"."""
    return subprocess.run([python, "-c", _FAMILY], check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def measured(python: str, parts: Sequence[str], quick: bool) -> dict[str, Any]:
    """What is measured with the MPI of an environment, by part."""
    found = {}
    for part in parts:
        say(f"{part}, {python}")
        found[part] = PARTS[part](python, quick)
    return found


def without_root(found: dict[str, Any]) -> str:
    """What has been found as JSON, in which paths start at the root of the project. Pure."""
    return json.dumps(found).replace(f"{ROOT}/", "")


def all_measured(options: Namespace) -> dict[str, Any]:
    """All figures of the page: those of some parts and MPIs anew, the others as they were. It starts jobs."""
    sys.path.insert(0, str(ROOT / "tests"))
    from host_network import missing

    if why := missing():
        sys.exit(f"bench.hosts is skipped: {why}")
    parts = options.only or [*PARTS]
    if not (task.RCV1.exists() or {*parts} <= WITHOUT_DATA):
        sys.exit(f"bench.hosts is skipped: it {task.NO_RCV1}")
    found = dict(options.before)
    with sharing_cores():
        for python in options.mpi:
            found[_family(python)] = found.get(_family(python), {}) | measured(python, parts, options.quick)
    anonymous: dict[str, Any] = json.loads(without_root(found))
    return anonymous


def add_options(parser: ArgumentParser) -> None:
    """Add --mpi."""
    parser.add_argument("--mpi", nargs="+", default=[sys.executable], metavar="PYTHON")


if __name__ == "__main__":
    document.measure("bench.hosts", str(__doc__), all_measured, page.tables, add_options, PARTS)
