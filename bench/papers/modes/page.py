"""The tables and figures of docs/modes.md, and its picture of time, from the JSON beside it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from bench.harness.document import Measured, Table, Tables, reached
from bench.papers.mllib.gantt import Lanes, picture
from bench.papers.modes.training import Count
from bench.papers.modes.way import AVERAGES, Way

AXIS_S = 0.008
"""Where the picture of time ends."""


def tables(found: Measured) -> Tables:
    """The tables of the page: of each program with even ranks and with a slow one; of real ranks."""
    of_programs = {f"{name.removeprefix('apps.')}_{pace}": table(one, pace)
                   for name, one in found["counts"].items() for pace in ("even", "slow")}  # fmt: skip
    return {**of_programs, "jobs": jobs(found["real"])}


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say."""
    svm, mlp = Rows(found, "apps.svm"), Rows(found, "apps.mlp")
    real = found["real"]["name"]
    return {**found["about"], "others": found["others"], "real_name": real, "svm": svm, "mlp": mlp}


def pictures(found: Measured) -> dict[str, str]:
    """The runs on one axis of time."""
    return {"modes-gantt": picture([Lanes(*one) for one in found["lanes"]], AXIS_S)}


def lanes(way: Way, one: Count) -> Lanes:
    """What each rank has done when, until the picture ends. Pure."""
    ranks = [[(kind, round(start, 7), round(end, 7)) for kind, start, end in lane if start < AXIS_S]
             for lane in one.lanes]  # fmt: skip
    return Lanes(way.name, int(one.steps) if math.isfinite(one.steps) else 0, one.seconds, ranks)


def table(one: Measured, pace: str) -> Table:
    """What each way has taken."""
    heads = ["", f"ms to {one['measure']}", "epochs", "waited, ms", "exchanged, ms", "busiest rank, MB", "a step"]
    return [[*heads, "lag", "most", "overwritten"], *([row["way"], *_cells(row, one["nbytes"])] for row in one[pace])]


def _cells(row: Measured, nbytes: int) -> Iterable[str]:
    if row["steps"] == "diverges":
        return [row["steps"], *["-"] * 8]
    taken = f"{1e3 * row['seconds']:.1f}" if _is_reached(row) else row["steps"]
    is_average = row["way"] == AVERAGES.name
    merged = ["-"] * 3 if is_average else [f"{row['lag']:.2f}", f"{row['most_lag']}", f"{row['overwritten']:,}"]
    return [taken, f"{row['epochs']:.1f}", f"{1e3 * row['waited_s']:.1f}", f"{1e3 * row['exchanged_s']:.1f}",
            f"{row['hottest'] / 1e6:,.1f}", f"{a_step(row, nbytes):.1f}", *merged]  # fmt: skip


def _is_reached(row: Measured) -> bool:
    return isinstance(row["steps"], int)


def a_step(row: Measured, nbytes: int) -> float:
    """What the busiest rank moves in an exchange of rank 0, in models. Pure."""
    return float(row["hottest"] / row["exchanges"] / nbytes)


def jobs(found: Measured) -> Table:
    """What each mode has taken on real ranks."""
    heads = [f"s to objective {found['target']:.4g}", "from, to", "epochs", "all ranks send, MB", "overwritten"]
    rows = [["ranks", "", *heads]]
    for one in found["jobs"]:
        times = [math.inf if seconds is None else seconds for seconds in one["seconds"]]
        extent = ", ".join(reached(one, ".3f") for one in (min(times), max(times)))
        rest = [f"{one['epochs']:g}", f"{one['sent'] / 1e6:,.1f}", f"{one['overwritten']:.0%}"]
        rows.append([str(one["ranks"]), one["sync"], reached(median(times), ".3f"), extent, *rest])
    return rows


class Rows:
    """The rows of a program, by pace and way: `even` or `slow`, and the name of a way as the tables have it."""

    def __init__(self, found: Measured, name: str) -> None:
        self._one = found["counts"][name]
        self.what, self.every, self.nbytes = (self._one[key] for key in ("what", "every", "nbytes"))
        self.row_us = 1e6 * found["row_s"][name]
        self.even, self.slow = ({row["way"]: row for row in self._one[pace]} for pace in ("even", "slow"))

    def step(self, way: str) -> float:
        """As `a_step`, where ranks are even."""
        return a_step(self.even[way], self.nbytes)

    def times(self, pace: str, slower: str, faster: str) -> float:
        """How many times as long one way takes as the other; NaN where one does not reach the objective."""
        one, other = (getattr(self, pace)[way] for way in (slower, faster))
        return float(one["seconds"] / other["seconds"]) if _is_reached(one) and _is_reached(other) else math.nan

    def gain(self, graph: str) -> float:
        """How many times as fast asp is as bsp beside a slow rank."""
        return self.times("slow", f"bsp, {graph}", f"asp, {graph}")

    def of_bsp(self, way: str) -> float:
        """The time of a way as a part of that of bsp on the same graph, beside a slow rank."""
        return self.times("slow", way, f"bsp, {way.split(', ')[1]}")

    @property
    def share(self) -> float:
        """The share of its time that a rank waits under bsp on the graph all, beside a slow one."""
        row = self.slow["bsp, all"]
        return float(row["waited_s"] / row["seconds"])
