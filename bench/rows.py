"""A row of the table: what was measured, against what, and whether the goal is reached."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    against: str
    ratio: float | None
    """Ours over theirs, so that more is better; None: not measured, and `note` says why."""
    goal: float
    """The ratio that is wanted at least."""
    ours: float = 0.0
    theirs: float = 0.0
    unit: str = "s"
    spread: float = 0.0
    """Of ours: the distance of the quartiles, as a share of the median."""
    note: str = ""

    @property
    def decision(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "reached" if self.ratio >= self.goal else "**not reached**"


def timed(name: str, against: str, goal: float, ours: Sequence[float], theirs: Sequence[float], note: str = "") -> Row:
    """The row of two lists of times, taken in turns."""
    pairs = [other / mine for other, mine in zip(theirs, ours, strict=True)]
    middle = statistics.median(ours)
    quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else [middle] * 3
    spread = (quartiles[2] - quartiles[0]) / middle if middle else 0.0
    return Row(name, against, statistics.median(pairs), goal, middle, statistics.median(theirs), "s", spread, note)


def to_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]


def from_json(rows: Sequence[dict[str, object]]) -> list[Row]:
    return [Row(**row) for row in rows]  # type: ignore[arg-type]


def read(path: Path) -> dict[str, list[Row]]:
    """The rows of a results file, by MPI."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {mpi: from_json(part["rows"]) for mpi, part in stored["results"].items()}


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| what | against | ours | theirs | ratio | goal | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        reports = "-" if row.ratio is None else f"{row.ratio:.2f} x"
        lines.append(
            f"| {row.name} | {row.against} | {shown(row.ours, row.unit)} | {shown(row.theirs, row.unit)} | {reports} "
            f"| {row.goal:g} x | {row.decision}{': ' + row.note if row.note else ''} |"
        )
    return "\n".join(lines)


def shown(value: float, unit: str) -> str:
    """A figure with its unit, of a size that reads well."""
    if not value:
        return "-"
    if unit != "s":
        return f"{value:,.4g} {unit}"
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {name}"
    return f"{value * 1e9:.3g} ns"


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What changed between two results by more than the spread of either, a line each."""
    old = {(row.name, row.against): row for row in before}
    lines = []
    for row in after:
        was = old.get((row.name, row.against))
        if was is None or was.ratio is None or row.ratio is None:
            continue
        noise = max(0.05, row.spread, was.spread)
        if abs(row.ratio / was.ratio - 1) > noise:
            change = f"{was.ratio:.2f} x -> {row.ratio:.2f} x (noise {noise:.0%})"
            lines.append(f"{row.name} against {row.against}: {change}")
    return lines
