"""Compares who waits for whom while apps.svm and apps.mlp train, along three graphs.

python -m bench.papers.modes [--quick] [--json docs/modes.json] [--only PART ...]

--quick: rows that the project has or makes, and small models.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from bench.harness import datasets, document, timing
from bench.harness.document import Measured, Table, Tables, say
from bench.papers.mllib.counting import shown
from bench.papers.modes import mlp, svm
from bench.papers.modes.training import BANDWIDTH, LATENCY_S, NETWORK, SLOW, Count, Pace, count
from bench.papers.modes.way import AVERAGES, RANKS, WAYS, Task, Way


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


def tables(found: Measured) -> Tables:
    """The tables of the page: of each program with even ranks and with a slow one."""
    return {f"{name.removeprefix('apps.')}_{pace}": table(one, pace)
            for name, one in found["counts"].items() for pace in ("even", "slow")}  # fmt: skip


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say."""
    programs = {
        name.removeprefix("apps."): {key: one[key] for key in ("what", "every", "nbytes")} | {"row_us": 1e6 * row_s}
        for (name, one), row_s in zip(found["counts"].items(), found["row_s"].values(), strict=True)
    }
    return {**found["about"], **programs}


def table(one: Measured, pace: str) -> Table:
    """What each way has taken."""
    heads = ["", f"ms to {one['measure']}", "epochs", "waited, ms", "exchanged, ms", "busiest rank, MB", "a step"]
    return [[*heads, "lag", "most", "overwritten"], *([row["way"], *_cells(row, one["nbytes"])] for row in one[pace])]


def _cells(row: Measured, nbytes: int) -> Iterable[str]:
    if row["steps"] == "diverges":
        return [row["steps"], *["-"] * 8]
    taken = f"{1e3 * row['seconds']:.1f}" if isinstance(row["steps"], int) else row["steps"]
    is_average = row["way"] == AVERAGES.name
    merged = ["-"] * 3 if is_average else [f"{row['lag']:.2f}", f"{row['most_lag']}", f"{row['overwritten']:,}"]
    return [taken, f"{row['epochs']:.1f}", f"{1e3 * row['waited_s']:.1f}", f"{1e3 * row['exchanged_s']:.1f}",
            f"{row['hottest'] / 1e6:,.1f}", f"{a_step(row, nbytes):.1f}", *merged]  # fmt: skip


def a_step(row: Measured, nbytes: int) -> float:
    """What the busiest rank moves in an exchange of rank 0, in models. Pure."""
    return float(row["hottest"] / row["exchanges"] / nbytes)


if __name__ == "__main__":
    document.measure("bench.papers.modes", str(__doc__), measured, tables, parts=PARTS, scales=(WHOLE, QUICK))
