"""The tables and figures of docs/angel.md, from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.harness.document import Measured, Table, Tables, one_of
from bench.papers.angel.comparison import ABOVE, HISTORY, L1, L2, OPTIMIZERS, PARTS, PLACES, RANK_0, Row


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"runs": _table(found["rows"], found["about"]["ranks"]), "hosts": _modelled(found["modelled"])}


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say. Lists are by optimizer."""
    about, rows = found["about"], found["rows"]
    few, ranks = about["ranks"][0], about["ranks"][-1]
    star, parts = (_training_mb(one_of(rows, optimizer="lbfgs", place=place.name, ranks=ranks)) for place in PLACES)
    hosts = {one["place"]: one["seconds"] for one in found["modelled"]}
    return {
        **about, "others": found["others"], "above": ABOVE, "l1": L1, "l2": L2, "history": HISTORY, "few": few,
        "ranks": ranks, "memory_star": star, "memory_parts": parts, "moved_less": _each(rows, ranks, "moved"),
        "faster": _each(rows, ranks, "seconds"), "faster_few": _each(rows, few, "seconds"),
        "reported": [one.reported for one in OPTIMIZERS], "hosts_less": hosts[RANK_0.name] / hosts[PARTS.name],
    }  # fmt: skip


def _training_mb(row: Row) -> float:
    return float(row["most_mb"] - row["before_mb"])


def _each(rows: Iterable[Row], ranks: int, what: str) -> list[float]:
    """How many times less of something the parts take than rank 0, by optimizer."""
    found = []
    for optimizer in OPTIMIZERS:
        star, parts = (one_of(rows, optimizer=optimizer.name, place=place.name, ranks=ranks)[what] for place in PLACES)
        found.append(max(star) / max(parts) if what == "moved" else star / parts)
    return found


def _table(rows: Iterable[Row], ranks: Iterable[int]) -> Table:
    lines = []
    for optimizer in OPTIMIZERS:
        for some in ranks:
            for place in PLACES:
                one = one_of(rows, optimizer=optimizer.name, place=place.name, ranks=some)
                mb = [f"{nbytes / 1e6:,.1f}" for nbytes in (max(one["moved"]), sum(one["moved"]) // 2)]
                memory = [f"{_training_mb(one):,.0f}", f"{one['most_mb']:,.0f}"]
                name = f"{place.name}, {optimizer.name}, {some} ranks"
                lines.append([name, f"{one['seconds']:.2f}", str(one["epochs"]), *mb, *memory])
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
