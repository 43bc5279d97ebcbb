"""Measures exchanges between two hosts, which it makes of namespaces, beside MPI's own calls; prints a table.

    python -m bench.hosts [--mpi PYTHON ...]

PYTHON: the interpreter of an environment, one for each MPI; by default this one. It needs root, iproute2 and sshd, and
says so where it cannot run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("small", "stream", "landing", "held")
_LIMIT_S = 120

Measured = Mapping[str, Mapping[str, list[float]]]


def measured(python: str) -> Measured:
    """The seconds of all parts, by part and name, with the MPI of an environment. RuntimeError: the job failed."""
    sys.path.insert(0, str(ROOT / "tests"))
    from host_network import HostNetwork  # with pytest, as tests use it

    network = HostNetwork("ab")
    try:
        words = ["-m", "malt", "run", "-n", "2", "--hosts", "a:1,b:1", "-m", "bench.hosts.transfers", *PARTS]
        done = network.run("a", python, *words, folder=ROOT, limit_s=_LIMIT_S)
    finally:
        network.close()
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Mapping[str, list[float]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


def lines(found: Measured) -> list[str]:
    """What was measured, as rows of a table: what, ours, MPI's, and the ratio or the slowest of a hundred."""
    rows = []
    for what, part, ours, theirs in (
        ("40 B, bsp; a blocking Allreduce", "small", "bsp", "Allreduce"),
        ("4 MB back to back, notify-ack; Put and Flush", "stream", "notify-ack", "Put + Flush"),
    ):
        own, other = (statistics.median(found[part][name]) for name in (ours, theirs))
        rows.append(f"| {what} | {_time(own)} | {_time(other)} | {own / other:.2f} times |")
    for what, part, name in (
        ("189 KB, asp, until they are there, while the receiver computes without the GIL", "landing", "landing"),
        ("189 KB, asp: how long scatter and gather hold the loop", "held", "asp"),
    ):
        times = sorted(found[part][name])
        slow = times[int(0.99 * len(times))]
        rows.append(f"| {what} | {_time(statistics.median(times))} | | 99 %: {_time(slow)} |")
    return rows


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hosts", description=str(__doc__).splitlines()[0])
    parser.add_argument("--mpi", nargs="+", default=[sys.executable], metavar="PYTHON")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    from host_network import missing

    if why := missing():
        sys.exit(f"bench.hosts is skipped: {why}")
    for python in options.mpi:
        print("\n".join([f"\n{python}\n", "| | here | MPI | |", "|---|---|---|---|", *lines(measured(python))]))


if __name__ == "__main__":
    main()
