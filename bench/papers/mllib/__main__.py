"""Compares what ranks of a linear model send, when and through whom, as MLlib* does, on simulated ranks.

python -m bench.papers.mllib [--quick] [--json docs/mllib.json] [--only PART ...]
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, NamedTuple

from bench.harness import document
from bench.harness.document import Measured, Table, Tables, say
from bench.papers.mllib import task, ways
from bench.papers.mllib.counting import RANKS, Count, count, search, shown
from bench.papers.mllib.task import Task
from bench.papers.mllib.ways import Setting


class Scale(NamedTuple):
    """How much is measured."""

    rows: int
    features: int
    rare_features: int
    most: int
    """Steps of SendGradient at most. Those of models take a tenth of it."""
    most_batches: int
    """Steps of sums of batches at most."""
    every: int
    """Of the step sizes of a grid, every so many."""
    above: float
    """How far above the optimum a training ends."""


WHOLE, QUICK = Scale(40_000, 20_000, 20_000, 1000, 1000, 1, task.ABOVE), Scale(4000, 500, 4000, 100, 10, 4, 0.1)


def measured(options: Namespace) -> dict[str, Any]:
    """The numbers in the text of the page."""
    scale = options.scale
    about = {
        "rows": scale.rows, "nonzeros": task.NONZEROS, "features": scale.features, "ranks": RANKS, "l2": task.L2,
        "above": scale.above, "most": scale.most, "rare_features": scale.rare_features,
    }  # fmt: skip
    return {"about": about, "model_nbytes": 4 * (scale.features + 1)}


def counts(options: Namespace, _: Measured) -> dict[str, Any]:
    """Steps and bytes of each way: the best of its grid."""
    scale, found = options.scale, []
    text = text_task(scale)
    for way in ways.WAYS:
        say(way.name)
        most = {ways.MLLIB: scale.most, ways.BATCH_SUMS: scale.most_batches}.get(way, scale.most // 10)
        found.append(as_json(search(text, way._replace(steps=way.steps[:: scale.every]), most)))
    return {"counts": found}


def sums(options: Namespace, _: Measured) -> dict[str, Any]:
    """Steps of sums and of means at each step size, an epoch between two, by the name of the rows."""
    scale, found = options.scale, {}
    steps = ways.MODEL_STEPS[:: 2 * scale.every]
    rare = task.task(task.rows(scale.rows, scale.rare_features, task.RARE), scale.rare_features, scale.above)
    census = task.task(*task.census(), scale.above)
    for name, one in (("a9a", census), ("text", text_task(scale)), ("columns alike", rare)):
        say(f"sums and means, {name}")
        found[name] = [
            [shown(count(one, way, Setting(step, 1.0), scale.most // 10).steps) for way in (ways.SUMS, ways.MLLIB_STAR)]
            for step in steps
        ]  # fmt: skip
    return {"sum_steps": steps, "sums": found}


PARTS = {"counts": counts, "sums": sums}
"""What can be measured by itself."""


def text_task(scale: Scale) -> Task:
    """The task of most figures."""
    return task.task(task.rows(scale.rows, scale.features, task.TEXT), scale.features, scale.above)


def as_json(one: Count) -> dict[str, object]:
    """A count, in words where it is no number."""
    return {"way": one.way.name, "steps": shown(one.steps), "bytes": one.bytes, "hottest": one.hottest,
            "seconds": one.seconds, "step": one.setting.step, "share": one.setting.share}  # fmt: skip


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    return {"steps": _counts(found), "sums": _sums(found)}


def figures(found: Measured) -> dict[str, Any]:
    """What the sentences of the page say beside cells of its tables."""
    return {**found["about"], "m": found["model_nbytes"], "sums_of": found["sums"]}


def _counts(found: Measured) -> Table:
    rows = [["", "steps", "all ranks send, MB", "busiest rank, MB", "a step, in m", "virtual s", "step size", "epochs"]]
    for one in found["counts"]:
        took = ["-"] * 4
        if isinstance(one["steps"], int):
            a_step = f"{one['hottest'] / one['steps'] / found['model_nbytes']:.2f}"
            took = [f"{one['bytes'] / 1e6:,.1f}", f"{one['hottest'] / 1e6:,.1f}", a_step, f"{one['seconds']:.3f}"]
        way = one["way"].replace("*", r"\*")
        rows.append([way, str(one["steps"]), *took, f"{one['step']:g}", f"{one['share']:g}"])
    return rows


def _sums(found: Measured) -> Table:
    rows = [["step size", *(f"{step:g}" for step in found["sum_steps"])]]
    return rows + [[name, *(" / ".join(map(str, pair)) for pair in pairs)] for name, pairs in found["sums"].items()]


if __name__ == "__main__":
    document.measure("bench.papers.mllib", str(__doc__), measured, tables, parts=PARTS, scales=(WHOLE, QUICK))
