"""Tables of docs/hosts.md: how jobs start, end, fail and go on across hosts, and what programs reach there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness.document import Table
from bench.hosts.trials import middle_and_worst

Runs = Sequence[Mapping[str, Any]]
ByMpi = Mapping[str, Any]
"""What a part has found, by the name of the MPI."""
_ENDINGS = {
    "well": "ends well, from its start", "early": "a rank raises before malt.init", "raises": "a rank raises",
    "killed": "a rank is killed", "deadline": "a rank does not come, from the deadline on",
}  # fmt: skip


def runs(found: ByMpi) -> list[Mapping[str, Any]]:
    """All runs of a part."""
    return [run for by_case in found.values() for some in by_case.values() for run in some]


def starts(found: ByMpi) -> Table:
    """Starts of jobs, by the hosts and by what becomes of a rank."""
    rows = [["", *(title for mpi in found for title in (f"{mpi}, as expected", "median, worst", "left"))]]
    for shape in next(iter(found.values())):
        for ending, words in _ENDINGS.items():
            by_mpi = [[run for run in one[shape] if run["ending"] == ending] for one in found.values()]
            if all(by_mpi):
                rows.append([f"{shape}: {words}", *(cell for some in by_mpi for cell in _ended(some, "seconds"))])
    return rows


def failures(found: ByMpi) -> Table:
    """Failures without --survive."""
    names = list(next(iter(found.values())))
    titles = ["", *(title for mpi in found for title in (f"{mpi}, ends", "median, worst", "left"))]
    return [titles, *([name, *(cell for one in found.values() for cell in _ended(one[name], "ended_s"))]
                      for name in names)]  # fmt: skip


def survival(found: ByMpi) -> Table:
    """Failures that ranks outlive. No rank uses MPI: all runs count together."""
    rows = [["", "as promised", "the others continue after", "`malt run` ends after", "left"]]
    for name in next(iter(found.values())):
        some = [run for one in found.values() for run in one[name]]
        pauses = [run["pause_s"] for run in some if "pause_s" in run and run["expected"]]
        as_said, ended, rest = _ended(some, "ended_s")
        rows.append([name, as_said, _times(pauses) if pauses else "-", ended, rest])
    return rows


def _ended(runs: Runs, key: str) -> tuple[str, str, str]:
    """How many runs have come to what was expected, their seconds, and what was left."""
    as_said = f"{sum(run['expected'] for run in runs)} of {len(runs)}"
    return as_said, _times([run[key] for run in runs]), _left(runs)


def _times(seconds: Sequence[float]) -> str:
    middle, worst = middle_and_worst(seconds)
    return f"{middle:.1f}, {worst:.1f} s"


def _left(runs: Runs) -> str:
    """What was left on hosts that were there: nothing, or for how long, or what stays."""
    if stays := sum(run["clean_s"] is None for run in runs):
        return f"in {stays} runs something stays"
    hosts = sorted({host for run in runs for host in run["left"]})
    if not hosts:
        return "nothing"
    return f"on {', '.join(hosts)} nothing after {max(run['clean_s'] for run in runs):.0f} s more"


def programs(found: ByMpi) -> Table:
    """What programs reach, and their bytes."""
    rows = [["", "", "at most", "one host", "two hosts", "MB on the bridge", "MB by MALT", ""]]
    for name in next(iter(found.values())):
        for mpi, one in found.items():
            run = one[name]
            share = f"{run['bytes_wire'] / run['bytes_across'] - 1:+.1%}" if run["is_even"] else ""
            rows.append([
                f"{name}, {mpi}", run["measure"].replace("_", " "), f"{run['least']:.4f}",
                f"{run['alone']:.4f}", f"{run['across']:.4f}{_range(run['reached'])}",
                f"{run['bytes_wire'] / 1e6:.1f}", f"{run['bytes_across'] / 1e6:.1f}", share,
            ])  # fmt: skip
    return rows


def _range(reached: Sequence[float]) -> str:
    """The least and the most of several runs, behind their median; "" of one."""
    return f" ({min(reached):.4f} to {max(reached):.4f})" if len(reached) > 1 else ""
