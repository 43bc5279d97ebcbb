"""Compares what ranks of a linear model send, when and through whom, as MLlib* does.

python -m bench.papers.mllib [--quick] [--json docs/mllib.json] [--only PART ...]
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.harness import document
from bench.harness.document import Measured, say
from bench.harness.rest import Others
from bench.papers.mllib import page, sizes, task, ways
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
    sizes: tuple[int, ...]


WHOLE = Scale(40_000, 20_000, 20_000, 1000, 1000, 1, task.ABOVE, (10**4, 10**5, 10**6, 10**7))
QUICK = Scale(4000, 500, 4000, 100, 10, 4, 0.1, (10**3,))


def measured(options: Namespace) -> dict[str, Any]:
    """The numbers in the text of the page."""
    scale = options.scale
    about = {
        "rows": scale.rows, "nonzeros": task.NONZEROS, "features": scale.features, "ranks": RANKS, "l2": task.L2,
        "above": scale.above, "most": scale.most, "rare_features": scale.rare_features, "real_ranks": sizes.RANKS,
        "size_rows": sizes.ROWS, "iterations": sizes.ITERATIONS,
    }  # fmt: skip
    return {"about": about, "model_nbytes": 4 * (scale.features + 1)}


def counts(options: Namespace, _: Measured) -> dict[str, Any]:
    """Steps and bytes of each way, by simulated ranks."""
    return {"counts": [as_json(one) for one in counted(text_task(options.scale), options.scale)]}


def compared(options: Namespace, _: Measured) -> dict[str, Any]:
    """Sums and means, by simulated ranks."""
    scale = options.scale
    steps = ways.MODEL_STEPS[:: 2 * scale.every]
    return {"sum_steps": steps, "sums": dict(sums(text_task(scale), scale, steps))}


def timed(options: Namespace, _: Measured) -> dict[str, Any]:
    """What is measured in seconds, on real ranks."""
    others = Others()
    return {"sizes": sizes.rows(options.scale.sizes), "others": others.share()}


PARTS = {"counts": counts, "sums": compared, "seconds": timed}
"""What can be measured by itself."""


def text_task(scale: Scale) -> Task:
    """The task of most figures."""
    return task.task(task.rows(scale.rows, scale.features, task.TEXT), scale.features, scale.above)


def counted(text: Task, scale: Scale) -> Iterator[Count]:
    """The best count of each way."""
    for way in ways.WAYS:
        say(way.name)
        most = {ways.MLLIB: scale.most, ways.BATCH_SUMS: scale.most_batches}.get(way, scale.most // 10)
        yield search(text, way._replace(steps=way.steps[:: scale.every]), most)


def sums(text: Task, scale: Scale, steps: tuple[float, ...]) -> Iterator[tuple[str, list[list[object]]]]:
    """Steps of sums and of means at each step size, an epoch between two, by the name of the rows."""
    rare = task.task(task.rows(scale.rows, scale.rare_features, task.RARE), scale.rare_features, scale.above)
    for name, one in (("a9a", task.task(*task.census(), scale.above)), ("text", text), ("columns alike", rare)):
        say(f"sums and means, {name}")
        yield name, [
            [shown(count(one, way, Setting(step, 1.0), scale.most // 10).steps) for way in (ways.SUMS, ways.MLLIB_STAR)]
            for step in steps
        ]  # fmt: skip


def as_json(one: Count) -> dict[str, object]:
    """A count, in words where it is no number."""
    return {"way": one.way.name, "steps": shown(one.steps), "bytes": one.bytes, "hottest": one.hottest,
            "seconds": one.seconds, "step": one.setting.step, "share": one.setting.share}  # fmt: skip


if __name__ == "__main__":
    document.measure("bench.papers.mllib", str(__doc__), measured, page.tables, parts=PARTS, scales=(WHOLE, QUICK))
