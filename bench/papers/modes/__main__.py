"""Compares who waits for whom while apps.svm and apps.mlp train, along three graphs.

python -m bench.papers.modes [--quick] [--json docs/modes.json] [--only PART ...]

--quick: rows that the project has or makes, and small models.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from bench.harness import datasets, document, timing
from bench.harness.document import Measured, say
from bench.papers.mllib.counting import shown
from bench.papers.modes import mlp, page, svm
from bench.papers.modes.training import BANDWIDTH, LATENCY_S, NETWORK, SLOW, Count, Pace, count
from bench.papers.modes.way import RANKS, WAYS, Task, Way


class Scale(NamedTuple):
    """How much is measured."""

    tasks: tuple[Callable[[], Task], ...]
    most: int
    """Exchanges of rank 0, at most."""


WHOLE = Scale((svm.news, mlp.digits), 120)
QUICK = Scale((svm.small, mlp.small), 4)
MEASURED = 7
"""Times that the kernels are timed."""
PACES = {"even": 1.0, "slow": SLOW}
"""How many times as long the last rank computes."""


@cache
def tasks(scale: Scale) -> tuple[Task, ...]:
    """The tasks, read once."""
    return tuple(make() for make in scale.tasks)


def measured(options: Namespace) -> dict[str, Any]:
    """The numbers in the text of the page."""
    if options.scale is WHOLE:
        datasets.need(datasets.RCV1, datasets.MNIST)
    about = {"ranks": RANKS, "slow": SLOW, "network": NETWORK, "latency_us": 1e6 * LATENCY_S, "gbit": 8e-9 * BANDWIDTH}
    return {"about": about}


def costs(options: Namespace, _: Measured) -> dict[str, Any]:
    """Seconds that a kernel takes for a row, on one core of this machine, to two digits: the least of some times."""
    say("seconds of a row")
    ours = tasks(options.scale)
    taken = timing.alternate({one.name: one.work for one in ours}, rounds=MEASURED)
    return {"row_s": {one.name: float(f"{min(taken[one.name]) / one.work():.2g}") for one in ours}}


def counts(options: Namespace, found: Measured) -> dict[str, Any]:
    """What each way takes, with even ranks and with a slow one, by simulated ranks."""
    made: dict[str, Any] = {}
    for one in tasks(options.scale):
        trained = {}
        for name, slow in PACES.items():
            pace = Pace(found["row_s"][one.name], slow)
            trained[name] = []
            for way in WAYS:
                taken = count(one, way, pace, options.scale.most)
                trained[name].append(as_json(way, taken))
                say(f"{one.name}, {name}, {way.name}: {1e3 * taken.seconds:.1f} ms, exchanges: {shown(taken.steps)}")
        made[one.name] = {"what": one.what, "measure": one.measure, "every": one.every, "rows": one.rows,
                          "nbytes": one.nbytes, **trained}  # fmt: skip
    return {"counts": made}


PARTS = {"costs": costs, "counts": counts}
"""What can be measured by itself, in this order: `counts` charges what `costs` has found."""


def as_json(way: Way, one: Count) -> dict[str, object]:
    """A count, in words where it is no number."""
    return {"way": way.name, **one._asdict(), "steps": shown(one.steps)}


if __name__ == "__main__":
    document.measure("bench.papers.modes", str(__doc__), measured, page.tables, parts=PARTS, scales=(WHOLE, QUICK))
