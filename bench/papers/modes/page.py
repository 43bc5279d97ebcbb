"""The tables and figures of docs/modes.md from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bench.harness.document import Measured, Table, Tables
from bench.papers.modes.way import AVERAGES


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
