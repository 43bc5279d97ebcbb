"""Tables of docs/hosts.md: how jobs start, end, fail and go on across hosts. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness.document import Table

Runs = Sequence[Mapping[str, Any]]
ByMpi = Mapping[str, Any]
"""What a part has found, by the name of the MPI."""


def runs(found: ByMpi) -> list[Mapping[str, Any]]:
    """All runs of a part."""
    return [run for by_case in found.values() for some in by_case.values() for run in some]


def ended(found: ByMpi) -> Table:
    """Jobs without --survive, by case."""
    titles = ["", *(title for mpi in found for title in (f"{mpi}, as expected", "median, worst", "left"))]
    cases = next(iter(found.values()))
    return [titles, *([case, *(cell for one in found.values() for cell in _ended(one[case]))] for case in cases)]


def survival(found: ByMpi) -> Table:
    """Failures that ranks outlive. No rank uses MPI: all runs count together."""
    rows = [["", "as promised", "the others continue after", "`malt run` ends after", "left"]]
    for name in next(iter(found.values())):
        some = [run for one in found.values() for run in one[name]]
        pauses = [run["pause_s"] for run in some if "pause_s" in run and run["expected"]]
        as_said, ended, rest = _ended(some)
        rows.append([name, as_said, _times(pauses) if pauses else "-", ended, rest])
    return rows


def _ended(runs: Runs) -> tuple[str, str, str]:
    """How many runs have come to what was expected, their seconds, and what was left."""
    as_said = f"{sum(run['expected'] for run in runs)} of {len(runs)}"
    return as_said, _times([run["ended_s"] for run in runs]), _left(runs)


def _times(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f} s"


def _left(runs: Runs) -> str:
    """What was left on hosts that were there: nothing, or for how long, or what stays."""
    if stays := sum(run["clean_s"] is None for run in runs):
        return f"in {stays} runs something stays"
    hosts = sorted({host for run in runs for host in run["left"]})
    if not hosts:
        return "nothing"
    return f"on {', '.join(hosts)} nothing after {max(run['clean_s'] for run in runs):.0f} s more"
