"""The tables and figures of docs/hosts.md, from the JSON beside it. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.harness.document import Measured, Table, Tables
from bench.hosts import planning, ways

ByMpi = Mapping[str, Any]
"""What a part has found, by the name of the MPI."""
NAMES = {"openmpi": "Open MPI", "mpich": "MPICH"}
SLOWEST = 0.99


def tables(found: Measured) -> Tables:
    """The tables of the page: what of it has been measured."""
    there = [name for name in PARTS if any(name in one for one in found.values())]
    return {name: PARTS[name](_each(found, name)) for name in there}


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say."""
    predicted = {mpi: planning.summary(rows) for mpi, rows in _each(found, "planned").items()}
    return {
        "rounds": max(len(of) for one in _each(found, "link").values() for of in _by_way(one).values()),
        "link_gain": _sooner(found, "link"), "far_gain": _sooner(found, "far"),
        "open": predicted["Open MPI"], "mpich": predicted["MPICH"], "planned_target": planning.PLAN.target,
        "survival_runs": [run for one in _each(found, "survival").values() for some in one.values() for run in some],
    }  # fmt: skip


def _sooner(found: Measured, part: str) -> dict[str, list[float]]:
    """By way, how many times as fast as an Allreduce it is with each MPI."""
    by_mpi = [_by_way(runs) for runs in _each(found, part).values()]
    return {way: [seconds(one[ways.ALLREDUCE]) / seconds(one[way]) for one in by_mpi] for way in by_mpi[0]}


def _each(measured: Measured, part: str) -> dict[str, Any]:
    """What a part has found, by the name of the MPI."""
    return {NAMES[mpi]: one[part] for mpi, one in sorted(measured.items(), reverse=True) if part in one}


_MESSAGES = (
    ("40 B under bsp, scatter and gather; a blocking Allreduce", "small", "bsp", "Allreduce"),
    ("the same, where a round trip takes 40 ms", "far_small", "bsp", "Allreduce"),
    ("189 KB, the same", "far_model", "bsp", "Allreduce"),
    ("189 KB under asp where a round trip takes 40 ms: they hold the loop, median and 99 %", "far_held", "asp", ""),
)


def transfers(found: ByMpi) -> Table:
    """Messages beside MPI's own calls."""
    titles = ["", *(title for mpi in found for title in (mpi, "its own call"))]
    return [titles, *(
        [what, *(cell for one in found.values() for cell in _pair(one[part], ours, theirs))]
        for what, part, ours, theirs in _MESSAGES if all(part in one for one in found.values())
    )]  # fmt: skip


def _pair(times: Mapping[str, Sequence[float]], ours: str, theirs: str) -> tuple[str, str]:
    own = _time(statistics.median(times[ours]))
    if ours == "asp":
        own += f", {_time(sorted(times[ours])[int(SLOWEST * len(times[ours]))])}"
    return own, _time(statistics.median(times[theirs])) if theirs else ""


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def planned(found: ByMpi) -> Table:
    """Predictions, and what was measured."""
    titles = ["", "MPI", "compute, ms", "predicted, s", "measured, s", "error"]
    return [titles, *(_predicted(mpi, row) for mpi, rows in found.items() for row in rows)]


def _predicted(mpi: str, row: Measured) -> list[str]:
    seconds = [f"{row[name]:.2f}" if row[name] else "-" for name in ("predicted", "measured")]
    error = planning.error(row)
    off = f"{error:.0%}" if error < math.inf else "-"
    graph = row["way"].removeprefix("bsp, ")
    return [f"{row['mbit']} Mbit/s, {graph}", mpi, f"{1e3 * row['compute_s']:.2f}", *seconds, off]


def compared(found: ByMpi) -> Table:
    """Ways to train, a row each."""
    titles = ["", *(title for mpi in found for title in (f"{mpi}, s", "sooner", "MB", "epochs"))]
    by_mpi = [_by_way(runs) for runs in found.values()]
    return [titles, *([way, *(cell for runs in by_mpi for cell in _cells(runs, way))] for way in by_mpi[0])]


def _by_way(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Runs by way, in the order of the table of ways."""
    names = [name for name in ways.WAYS if any(run["way"] == name for run in runs)]
    return {name: [run for run in runs if run["way"] == name] for name in names}


def seconds(runs: Sequence[Measured]) -> float:
    """The median; infinity where most runs have not reached the target."""
    return statistics.median(math.inf if run["seconds"] is None else run["seconds"] for run in runs)


def _cells(by_way: Mapping[str, Sequence[Measured]], way: str) -> list[str]:
    runs = by_way[way]
    took, theirs = seconds(runs), seconds(by_way[ways.ALLREDUCE])
    if took == math.inf:
        lowest = statistics.median(run["lowest"] for run in runs)
        return [f"not in {max(run['ended_s'] for run in runs):.1f} ({lowest:.4f})", "-", "-", "-"]
    sooner = "" if way == ways.ALLREDUCE or theirs == math.inf else f"{theirs / took:.1f} x"
    wire, epochs = (statistics.median(run[name] for run in runs) for name in ("wire", "epochs"))
    return [f"{took:.2f}", sooner, f"{wire / 1e6:.1f}", f"{epochs:.1f}"]


def survival(found: ByMpi) -> Table:
    """Failures that ranks outlive. No rank uses MPI: all runs count together."""
    rows = [["", "as promised", "the others continue after", "`malt run` ends after", "left"]]
    for name in next(iter(found.values())):
        some = [run for one in found.values() for run in one[name]]
        pauses = [run["pause_s"] for run in some if "pause_s" in run and run["expected"]]
        as_said = f"{sum(run['expected'] for run in some)} of {len(some)}"
        ended = _median_and_worst([run["ended_s"] for run in some])
        rows.append([name, as_said, _median_and_worst(pauses) if pauses else "-", ended, _left(some)])
    return rows


def _median_and_worst(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f} s"


def _left(runs: Sequence[Measured]) -> str:
    """What was left on hosts that were there: nothing, or for how long, or what stays."""
    if stays := sum(run["clean_s"] is None for run in runs):
        return f"in {stays} runs something stays"
    hosts = sorted({host for run in runs for host in run["left"]})
    if not hosts:
        return "nothing"
    return f"on {', '.join(hosts)} nothing after {max(run['clean_s'] for run in runs):.0f} s more"


PARTS: dict[str, Callable[[ByMpi], Table]] = {
    "transfers": transfers, "link": compared, "planned": planned, "far": compared, "survival": survival,
}  # fmt: skip
"""The tables, in the order of the page."""
