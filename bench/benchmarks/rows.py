"""Rows of the results table: what was measured, against what, and whether the goal is reached. Local."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from bench.harness.document import Measured, Table
from bench.harness.timing import ratio


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    against: str
    ratio: float | None
    """How many times better ours is than theirs. None means not measured, and `note` says why."""
    goal: float | None
    """The least ratio that is wanted. None: there is none."""
    ours: float = 0.0
    theirs: float = 0.0
    unit: str = "s"
    spread: float = 0.0
    """The interquartile range of ours, as a share of the median."""
    note: str = ""

    @property
    def outcome(self) -> str:
        """Whether the goal is reached, as the table shows it."""
        if self.ratio is None:
            return "not measured"
        if self.goal is None:
            return ""
        return "reached" if self.ratio >= self.goal else "**not reached**"


def timed(
    name: str, against: str, goal: float | None, ours: Sequence[float], theirs: Sequence[float], note: str = "",
    unit: str = "s",
) -> Row:  # fmt: skip
    """The row of two lists of times, or of what else is better the smaller it is, taken in turns.

    The ratio is the median over pairs.
    """
    return _paired(Row(name, against, ratio(theirs, ours), goal, unit=unit, note=note), ours, theirs)


def rated(name: str, against: str, goal: float | None, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The row of two lists of rates per second, taken in turns. The ratio is the median over pairs."""
    return _paired(Row(name, against, ratio(ours, theirs), goal, unit="1/s"), ours, theirs)


def _paired(row: Row, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The row with the medians and the spread of its numbers."""
    middle = statistics.median(ours)
    quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else [middle] * 3
    spread = (quartiles[2] - quartiles[0]) / middle if middle else 0.0
    return replace(row, ours=middle, theirs=statistics.median(theirs), spread=spread)


def to_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The rows as values that JSON can represent."""
    return [asdict(row) for row in rows]


def from_json(rows: Sequence[dict[str, object]]) -> list[Row]:
    """The rows that `to_json` represented."""
    return [Row(**row) for row in rows]  # type: ignore[arg-type]


def read(found: Measured) -> dict[str, list[Row]]:
    """The rows of all parts of the JSON of docs/benchmarks.md, by MPI library."""
    return {
        mpi: [row for part in result["parts"].values() for row in from_json(part["rows"])]
        for mpi, result in found["results"].items()
    }


def first(found: Measured) -> list[Row]:
    """Those of the first MPI library."""
    return next(iter(read(found).values()))


def table(rows: Sequence[Row]) -> Table:
    """A row each, with its goal, for developers."""
    lines = [["what", "against", "ours", "theirs", "ratio", "goal", ""]]
    for row in rows:
        goal = "-" if row.goal is None else f"{row.goal:.2g} x"
        said = ": ".join(filter(None, (row.outcome, row.note)))
        ours, theirs = shown(row.ours, row.unit), shown(row.theirs, row.unit)
        lines.append([row.name, row.against, ours, theirs, times(row.ratio), goal, said])
    return lines


NUMBA = ", with numba"
"""How the name of a row ends whose program has imported numba. That of the row without numba lacks it."""
LIMITS = ("60 us", "0.3 s more than bare mpi4py", "none of them")
"""What rows are compared with that is no measurement, but the developers' limit. The page does not show it."""


def page_table(rows: Sequence[Row], how: str = "MALT") -> Table:
    """Return the rows for readers: no goals, and what was measured plainly and with numba in one line.

    `how`: the heading of MALT's column.
    """
    compiled = {(row.name.removesuffix(NUMBA), row.against): row for row in rows if row.name.endswith(NUMBA)}
    headings = ["what", "compared with", "reference", how, "ratio"]
    headings += ["MALT with numba", "ratio with numba"] if compiled else []
    headings += ["notes"] if any(row.note for row in rows) else []
    lines = [headings]
    for row in rows:
        if not row.name.endswith(NUMBA):
            other = compiled.get((row.name, row.against))
            theirs, ours = shown(row.theirs, row.unit), shown(row.ours, row.unit)
            cells = [row.name, row.against, theirs, ours, times(row.ratio)]
            if row.against in LIMITS:
                cells[1:] = ["-", "-", ours, "-"]
            if compiled:
                cells += ["-", "-"] if other is None else [shown(other.ours, other.unit), times(other.ratio)]
            if "notes" in headings:
                cells.append(row.note if row.ratio is not None else f"not measured: {row.note}")
            lines.append(cells)
    return lines


def times(ratio: float | None) -> str:
    """A ratio as the page has it."""
    return "-" if ratio is None else f"{ratio:.2f} x"


def shown(value: float, unit: str) -> str:
    """Return a number with its unit: seconds as s, ms, us or ns, millions per second as M/s."""
    if not value and unit != "runs":
        return "-"
    if unit == "1/s" and value >= 1e6:
        return f"{value / 1e6:.3g} M/s"
    if unit != "s":
        return f"{value:,.4g} {unit}"
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {name}"
    return f"{value * 1e9:.3g} ns"
