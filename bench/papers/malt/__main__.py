"""Runs the experiments of the MALT paper (EuroSys 2015) on shapes of its data.

python -m bench.papers.malt [--quick] [--json docs/malt.json] [--only PART ...]

Ranks go on without one that is killed: that part needs Open MPI.
"""

from __future__ import annotations

from argparse import Namespace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import document
from bench.harness.document import Measured, say
from bench.harness.rest import Others
from bench.papers.malt import failure, hosts, page, simulated, speedup, workloads
from bench.papers.malt.workloads import Workload


class Scale(NamedTuple):
    """How much is measured."""

    shapes: workloads.Scale
    rounds: int
    failing_rows: int
    until_back: bool
    """Whether the others wait for the rank that comes back."""
    killed_every_s: float
    goodput_epochs: int
    untimed: frozenset[str]
    """Workloads whose seconds are left out. Their bytes are counted."""


WHOLE = Scale(workloads.WHOLE, 3, 12_000, False, 30.0, 400, frozenset())
QUICK = Scale(workloads.QUICK, 1, 4000, True, 2.0, 8, frozenset({"alpha", "DNA", "webspam", "Netflix", "KDD12"}))


@cache
def shapes(scale: Scale, folder: Path) -> list[Workload]:
    """The workloads, made once."""
    return list(workloads.made(scale.shapes, folder, say))


def of_shapes(options: Namespace) -> dict[str, Any]:
    """What the page says of the workloads."""
    return {"shapes": [page.shape(one) for one in shapes(options.scale, options.scratch)]}


def timed(options: Namespace, _: Measured) -> dict[str, Any]:
    """Seconds of two ranks beside those of one, in jobs."""
    scale, made, found = options.scale, of_shapes(options), []
    others = Others()
    for one in shapes(scale, options.scratch):
        if one.name not in scale.untimed:
            say(f"{one.name}: one rank and {speedup.RANKS}")
            found.append(speedup.compared(one, scale.rounds))
    return {**made, "speedup": found, "rounds": scale.rounds, "others": others.share()}


def spread(options: Namespace, _: Measured) -> dict[str, Any]:
    """Virtual seconds of ranks on hosts of their own. RCV1 is there with many rows."""
    scale, folder = options.scale, options.scratch
    some = [one for one in shapes(scale, folder) if one.name in hosts.LINEAR and one.name not in scale.untimed]
    each = [workloads.many_news(scale.shapes, folder), *some]
    return {**of_shapes(options), "hosts": [{**page.shape(one), **hosts.compared(one)} for one in each]}


def counted(options: Namespace, _: Measured) -> dict[str, Any]:
    """Bytes of the rows that are touched, on simulated ranks."""
    found = []
    for one in shapes(options.scale, options.scratch):
        say(f"{one.name}: {one.simulated} simulated ranks")
        found.append({"name": one.name, "ranks": one.simulated, **simulated.counted(one)})
    return {**of_shapes(options), "traffic": found}


def killed(options: Namespace, _: Measured) -> dict[str, Any]:
    """The objective over seconds with a failure and without one, and goodput where ranks are killed again, in jobs."""
    scale, folder = options.scale, options.scratch
    say(f"{failure.RANKS} ranks, of which one is killed")
    found = {"failure": failure.curves(scale.failing_rows, folder, scale.until_back)}
    say(f"{failure.RANKS} ranks, of which one is killed every {scale.killed_every_s:g} s, and comes back")
    return {**found, "goodput": failure.goodput(scale.killed_every_s, scale.goodput_epochs, folder)}


PARTS: dict[str, document.Part] = {"speedup": timed, "hosts": spread, "traffic": counted, "failure": killed}
"""What can be measured by itself."""


if __name__ == "__main__":
    document.measure("bench.papers.malt", str(__doc__), lambda _: {}, page.tables, parts=PARTS, scales=(WHOLE, QUICK))
