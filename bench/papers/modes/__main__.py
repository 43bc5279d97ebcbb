"""Compares who waits for whom while apps.svm and apps.mlp train, along three graphs.

python -m bench.papers.modes [--quick] [--json docs/modes.json] [--only PART ...]

--quick: rows that the project has or makes, and small models.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from bench.benchmarks.svm import task
from bench.harness import document, timing
from bench.harness.document import Measured, say
from bench.harness.rest import Others
from bench.papers.mllib.counting import shown
from bench.papers.modes import machine, mlp, page, svm
from bench.papers.modes.training import BANDWIDTH, LATENCY_S, NETWORK, SLOW, Count, Pace, count
from bench.papers.modes.way import RANKS, SYNCS, WAYS, Task, Way


class Scale(NamedTuple):
    """How much is measured."""

    tasks: tuple[Callable[[], Task], ...]
    most: tuple[int, ...]
    """Exchanges of rank 0, at most, by task."""
    real: Callable[[], task.Task]
    """The rows of the real jobs."""
    ranks: tuple[int, ...]
    """Of the real jobs."""
    rounds: int
    """Of the real jobs."""
    syncs: tuple[str, ...]
    """Those of the real jobs."""


WHOLE = Scale((svm.news, mlp.digits), (120, 120), task.rcv1, (2, 4), 3, SYNCS)
QUICK = Scale((svm.small, mlp.small), (12, 12), machine.embedded, (2,), 1, ("asp", "bsp"))
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
    for folder in () if options.quick else (task.RCV1, mlp.MNIST):
        if not folder.exists():
            sys.exit(f"{folder} is not there: --quick does without")
    about = {"ranks": RANKS, "slow": SLOW, "network": NETWORK, "latency_us": 1e6 * LATENCY_S, "gbit": 8e-9 * BANDWIDTH,
             "real_ranks": options.scale.ranks, "rounds": options.scale.rounds}  # fmt: skip
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
    for one, most in zip(tasks(options.scale), options.scale.most, strict=True):
        trained = {}
        for name, slow in PACES.items():
            pace = Pace(found["row_s"][one.name], slow)
            trained[name] = []
            for way in WAYS:
                taken = count(one, way, pace, most)
                trained[name].append(as_json(way, taken))
                say(f"{one.name}, {name}, {way.name}: {1e3 * taken.seconds:.1f} ms, exchanges: {shown(taken.steps)}")
        made[one.name] = {"what": one.what, "measure": one.measure, "every": one.every, "rows": one.rows,
                          "nbytes": one.nbytes, **trained}  # fmt: skip
    return {"counts": made}


def real(options: Namespace, _: Measured) -> dict[str, Any]:
    """What the modes take on real ranks."""
    scale = options.scale
    say(f"jobs of {' and '.join(map(str, scale.ranks))} ranks, {scale.rounds} of each mode")
    others = Others()
    rows = scale.real()
    made = [one._asdict() for one in machine.runs(rows, scale.ranks, scale.rounds, scale.syncs)]
    for one in made:
        one["seconds"] = [seconds if math.isfinite(seconds) else None for seconds in one["seconds"]]
    return {"real": {"name": rows.name, "target": rows.target, "jobs": made}, "others": others.share()}


PARTS = {"costs": costs, "counts": counts, "jobs": real}
"""What can be measured by itself, in this order: `counts` charges what `costs` has found."""


def as_json(way: Way, one: Count) -> dict[str, object]:
    """A count, in words where it is no number."""
    return {"way": way.name, **one._asdict(), "steps": shown(one.steps)}


if __name__ == "__main__":
    document.measure("bench.papers.modes", str(__doc__), measured, page.tables, parts=PARTS, scales=(WHOLE, QUICK))
