"""The tables and figures of docs/mllib.md from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.harness.document import Measured, Table, Tables


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"steps": _counts(found), "sums": _sums(found), "sizes": _sizes(found["sizes"])}


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say beside cells of its tables."""
    return {**found["about"], "m": found["model_nbytes"], "others": found["others"], "sums_of": found["sums"]}


def _counts(found: Measured) -> Table:
    rows = [["", "steps", "all ranks send, MB", "busiest rank, MB", "a step, in m", "virtual s", "step size", "epochs"]]
    for one in found["counts"]:
        took = ["-"] * 4
        if _is_number(one["steps"]):
            a_step = f"{one['hottest'] / one['steps'] / found['model_nbytes']:.2f}"
            took = [f"{one['bytes'] / 1e6:,.1f}", f"{one['hottest'] / 1e6:,.1f}", a_step, f"{one['seconds']:.3f}"]
        way = one["way"].replace("*", r"\*")
        rows.append([way, str(one["steps"]), *took, f"{one['step']:g}", f"{one['share']:g}"])
    return rows


def _sums(found: Measured) -> Table:
    rows = [["step size", *(f"{step:g}" for step in found["sum_steps"])]]
    return rows + [[name, *(" / ".join(map(str, pair)) for pair in pairs)] for name, pairs in found["sums"].items()]


def _sizes(found: Iterable[Mapping[str, float]]) -> Table:
    heads = ["features", "distribute", "compute", "aggregate", "update", "all"]
    rows = [[*heads, "by reduce-scatter", "by tree", "by star"]]
    for row in found:
        phases = [row[name] for name in ("distribute", "compute", "aggregate", "update")]
        others = [row[name] for name in ("reduce-scatter", "tree", "star")]
        cells = [f"{1e3 * seconds:.2f} ms" for seconds in (*phases, sum(phases), *others)]
        rows.append([f"{int(row['features']):,}", *cells])
    return rows


def _is_number(steps: object) -> bool:
    return isinstance(steps, int)
