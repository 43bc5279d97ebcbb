"""Runs the experiments of the MALT paper (EuroSys 2015) on shapes of its data.

python -m bench.paper [--quick] [--json docs/malt.json] [--only PART ...]

Ranks go on without one that is killed: that part needs Open MPI.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import document
from bench.document import Measured, say
from bench.pages import lines
from bench.paper import failure, hosts, page, rcv1, speedup, traffic, workloads
from bench.paper.workloads import Workload
from bench.rest import Others


class Scale(NamedTuple):
    """How much is measured."""

    shapes: workloads.Scale
    rounds: int
    failing_rows: int
    until_back: bool
    """Whether the others wait for the rank that comes back."""
    killed_every_s: float
    goodput_epochs: int
    host_epochs: int
    untimed: frozenset[str]
    """Workloads whose seconds are left out: those of another one of their kind are there."""


WHOLE = Scale(workloads.WHOLE, 3, 12_000, False, 30.0, 400, hosts.EPOCHS, frozenset())
QUICK = Scale(workloads.QUICK, 1, 4000, True, 8.0, 28, 4, frozenset({"alpha", "DNA", "webspam"}))
Made = Sequence[Workload]


def timed(scale: Scale, made: Made, _: Path) -> dict[str, Any]:
    """Seconds of two ranks beside those of one, in jobs."""
    others, found = Others(), []
    for one in made:
        if one.name not in scale.untimed:
            say(f"{one.name}: one rank and {speedup.RANKS}")
            found.append(speedup.compared(one, scale.rounds))
    return {"speedup": found, "rounds": scale.rounds, "others": others.share()}


def spread(scale: Scale, made: Made, _: Path) -> dict[str, Any]:
    """Virtual seconds of ranks on hosts of their own."""
    found = []
    for one in made:
        if one.name in hosts.LINEAR and one.name not in scale.untimed:
            found.append(hosts.compared(one, scale.host_epochs))
    return {"hosts": found}


def scaled(scale: Scale, _: Made, folder: Path) -> dict[str, Any]:
    """The same of many rows like those of RCV1."""
    say("many rows like those of news")
    made = workloads.many_news(scale.shapes, folder)
    return {"rcv1": {**rcv1.measured(made), "shape": page.shape(made)}}


def counted(_: Scale, made: Made, __: Path) -> dict[str, Any]:
    """Bytes by graph, on simulated ranks."""
    found = []
    for one in made:
        say(f"{one.name}: {one.simulated} simulated ranks, by graph")
        graphs = {graph: traffic.counted(one, graph) for graph in traffic.GRAPHS}
        found.append({"name": one.name, "ranks": one.simulated, "graphs": graphs})
    return {"traffic": found}


def killed(scale: Scale, _: Made, folder: Path) -> dict[str, Any]:
    """The objective over seconds with a failure and without one, and goodput where ranks are killed again, in jobs."""
    say(f"{failure.RANKS} ranks, of which one is killed")
    found = {"failure": failure.curves(scale.failing_rows, folder, scale.until_back)}
    say(f"{failure.RANKS} ranks, of which one is killed every {scale.killed_every_s:g} s, and comes back")
    return {**found, "goodput": failure.goodput(scale.killed_every_s, scale.goodput_epochs, folder)}


def changed(*_: Any) -> dict[str, Any]:
    """The lines that a port changes."""
    return {"lines": [
        [one.title, *lines.change(lines.source(name, "serial"), lines.source(name, "parallel"))]
        for name, one in lines.EXAMPLES.items()
    ]}  # fmt: skip


PARTS: dict[str, Callable[[Scale, Made, Path], dict[str, Any]]] = {
    "speedup": timed, "hosts": spread, "rcv1": scaled, "traffic": counted, "failure": killed, "lines": changed,
}  # fmt: skip
"""What can be measured by itself."""
_ON_ROWS = {"speedup", "hosts", "traffic"}
"""The parts that need the workloads."""


def measured(options: Namespace) -> Measured:
    """All figures of the page: those of some parts anew, the others as they were. It starts jobs."""
    scale, parts = QUICK if options.quick else WHOLE, options.only or list(PARTS)
    found = dict(options.before)
    with tempfile.TemporaryDirectory() as folder:
        made: Made = []
        if _ON_ROWS & set(parts):
            made = list(workloads.made(scale.shapes, Path(folder), say))
            found["shapes"] = [page.shape(one) for one in made]
        for part in parts:
            found |= PARTS[part](scale, made, Path(folder))
    return found


if __name__ == "__main__":
    document.measure("bench.paper", str(__doc__), measured, page.tables, parts=PARTS)
