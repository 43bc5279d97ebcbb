"""Rows of the tables of docs/benchmarks.md: what was measured, against what. Local."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from bench.harness.document import Measured, Table
from bench.harness.timing import ratio


class Row(NamedTuple):
    """One comparison, or one number that is compared with nothing."""

    name: str
    against: str
    """Empty: there is nothing to compare with."""
    ratio: float | None
    """How many times better ours is than theirs. None: there is none."""
    ours: float = 0.0
    theirs: float = 0.0
    unit: str = "s"
    note: str = ""


def missing(name: str, against: str, why: str) -> Row:
    """The row of what cannot be measured here."""
    return Row(name, against, None, note=f"not measured: {why}")


def timed(
    name: str, against: str, ours: Sequence[float], theirs: Sequence[float], note: str = "", unit: str = "s"
) -> Row:
    """The row of two lists of times, or of what else is better the smaller it is, taken in turns.

    The ratio is the median over pairs.
    """
    return Row(name, against, ratio(theirs, ours), statistics.median(ours), statistics.median(theirs), unit, note)


def rated(name: str, against: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The row of two lists of rates per second, taken in turns. The ratio is the median over pairs."""
    return timed(name, against, ours, theirs, unit="1/s")._replace(ratio=ratio(ours, theirs))


def every(found: Measured) -> list[Row]:
    """The rows of all parts in the JSON of docs/benchmarks.md."""
    return [Row(**row) for part in found.values() for row in part["rows"]]


NUMBA = ", with numba"
"""How the name of a row ends whose program has imported numba. That of the row without numba lacks it."""


def table(rows: Sequence[Row], how: str = "MALT") -> Table:
    """Return the rows for readers: what was measured plainly and with numba is one line.

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
            theirs = shown(row.theirs, row.unit) if row.against else "-"
            cells = [row.name, row.against or "-", theirs, shown(row.ours, row.unit), times(row.ratio)]
            if compiled:
                cells += ["-", "-"] if other is None else [shown(other.ours, other.unit), times(other.ratio)]
            if "notes" in headings:
                cells.append(row.note)
            lines.append(cells)
    return lines


def times(ratio: float | None) -> str:
    """A ratio as the page has it."""
    return "-" if ratio is None else f"{ratio:.2f} x"


def shown(value: float, unit: str) -> str:
    """Return a number with its unit: seconds as s, ms, us or ns, millions per second as M/s."""
    if not value:
        return "-"
    if unit == "1/s" and value >= 1e6:
        return f"{value / 1e6:.3g} M/s"
    if unit != "s":
        return f"{value:,.4g} {unit}"
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {name}"
    return f"{value * 1e9:.3g} ns"
