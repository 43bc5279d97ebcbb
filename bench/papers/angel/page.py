"""The tables and figures of docs/angel.md, from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.harness.document import Measured, Table, Tables, one_of
from bench.papers.angel.comparison import ABOVE, HISTORY, L1, L2, OPTIMIZERS, PLACES, Row


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"runs": _table(found["rows"], found["about"]["ranks"]), "hosts": _modelled(found["modelled"])}


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say beside cells of its tables."""
    about = {f"about_{name}": value for name, value in found["about"].items()}
    constants = {"above": ABOVE, "l1": L1, "l2": L2, "history": HISTORY}
    return {**about, **constants, "others": found["others"], "reported": [one.reported for one in OPTIMIZERS]}


def _table(rows: Iterable[Row], ranks: Iterable[int]) -> Table:
    lines = []
    for optimizer in OPTIMIZERS:
        for some in ranks:
            for place in PLACES:
                one = one_of(rows, optimizer=optimizer.name, place=place.name, ranks=some)
                mb = [f"{nbytes / 1e6:,.1f}" for nbytes in (max(one["moved"]), sum(one["moved"]) // 2)]
                memory = [f"{one['most_mb'] - one['before_mb']:,.0f}", f"{one['most_mb']:,.0f}"]
                name = f"{place.name}, {optimizer.name}, {some} ranks"
                lines.append([name, f"{one['seconds']:.3f}", str(one["epochs"]), *mb, *memory])
    headings = ("", "seconds", "epochs", "busiest rank, MB", "all ranks, MB", "memory of training, rank 0, MB",
                "most memory of rank 0, MB")  # fmt: skip
    return [headings, *lines]


def _modelled(rows: Iterable[Row]) -> Table:
    lines = [
        [one["place"], f"{1e3 * one['seconds']:,.1f}", f"{max(one['moved']) / 1e6:,.1f}",
         f"{sum(one['moved']) / 2e6:,.1f}"]
        for one in rows
    ]  # fmt: skip
    return [("", "virtual ms an iteration", "busiest rank, MB in all", "all ranks, MB"), *lines]
