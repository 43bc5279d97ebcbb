"""Compares malt.torch with DDP over gloo: time, accuracy and bytes of a small network on MNIST.

python -m bench.pages.torch [--json docs/torch.json] [--only host]
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from bench.harness import datasets, document, jobs, timing
from bench.harness.document import Measured, Table, Tables, reached, say
from bench.harness.timing import turns
from bench.hosts import trials

RANKS, EPOCHS, ROWS, TARGETS = 2, 10, 10_000, (0.97, 0.98)
SELDOM = {"average": "delta", "every": 78}
SMOOTH = {**SELDOM, "outer": (0.7, 0.5)}
CONTENDERS: dict[str, dict[str, Any]] = {
    "DDP, gloo": {"way": "ddp"},
    "gradients, every batch": {"average": "gradient"},
    "changes, every 78 batches": SELDOM,
    "outer Nesterov, every 78": SMOOTH,
    'the same, `wire="int8"`': {**SMOOTH, "wire": "int8"},
    'the same, `wire="int8"`, `top=0.25`': {**SMOOTH, "wire": "int8", "top": 0.25},
}
OVER_LINK = ("DDP, gloo", "gradients, every batch", "changes, every 78 batches", "outer Nesterov, every 78")
MBIT = 100
"""The rate of the link between two hosts."""
HOSTS = "ab"
ROUNDS, LINK_ROUNDS = 3, 2
Epochs = list[dict[str, float]]


def runs(whom: Collection[str], run: Callable[..., Epochs], rounds: int) -> dict[str, list[Epochs]]:
    """What `whom` report of their epochs, in turns. run(way, program, folder, options) is one of them."""
    datasets.need(datasets.MNIST)

    def ran(who: str, seed: int) -> Epochs:
        say(f"round {seed}, {who}")
        whole = {"way": "malt", "is_dense": False, "rows": ROWS, "batch": 32, "step": 0.05, "epochs": EPOCHS,
                 "seed": seed, **CONTENDERS[who]}  # fmt: skip
        return run(whole["way"], "bench.pages.digits", str(datasets.MNIST), json.dumps(whole))

    return turns({who: partial(ran, who) for who in whom}, rounds)


def table(runs: Mapping[str, Sequence[Epochs]], cost: str) -> Table:
    """A row for each contender, of which the first is DDP. `cost`: what the last columns count until an accuracy is
    reached, "sent" or "seconds".
    """
    unit = {"sent": "MB", "seconds": "s"}[cost]
    titles = ["", "test accuracy", "seconds", "of DDP's", "MB sent", "of DDP's"]
    rows = [titles + [f"{unit} to {target}" for target in TARGETS]]
    theirs = [epochs[-1] for epochs in next(iter(runs.values()))]
    for who, made in runs.items():
        ends = [epochs[-1] for epochs in made]
        seconds = [end["seconds"] for end in ends]
        part = 1 / timing.ratio([end["seconds"] for end in theirs], seconds)
        sent, least = ends[0]["sent"], theirs[0]["sent"]
        rows.append([
            who, f"{statistics.median(end['test_accuracy'] for end in ends):.4f}", f"{statistics.median(seconds):.1f}",
            f"{part:.2f}", f"{sent / 1e6:.2f}", "1" if sent == least else f"1/{least / sent:.0f}",
            *(_reached(made, target, cost) for target in TARGETS),
        ])  # fmt: skip
    return rows


def _reached(runs: Sequence[Epochs], target: float, cost: str) -> str:
    """The median of what runs cost until they reach this accuracy: megabytes or seconds."""
    costs = [jobs.first(epochs, "test_accuracy", target, rising=True).get(cost, math.inf) for epochs in runs]
    return reached(statistics.median(costs) / (1e6 if cost == "sent" else 1), ".2f" if cost == "sent" else ".1f")


def on_host(_: Namespace, found: Measured) -> Measured:
    """Rounds on one host."""

    def run(way: str, *words: str) -> Epochs:
        made: Epochs = (
            jobs.processes(RANKS, ["-m", *words], {"OMP_NUM_THREADS": "1"}) if way == "ddp"
            else jobs.report(RANKS, *words)
        )  # fmt: skip
        return made

    return _with(found, {"host": table(runs(CONTENDERS, run, ROUNDS), "sent")}, {"rounds": ROUNDS})


def over_link(_: Namespace, found: Measured) -> Measured:
    """Rounds over a link between two hosts, a rank on each. SystemExit: there can be no such hosts here."""
    if why := trials.missing_hosts():
        sys.exit(f"bench.pages.torch is skipped: {why}")

    def run(way: str, *words: str) -> Epochs:
        made: Epochs = (
            trials.processes(network, sys.executable, ["-m", *words]) if way == "ddp"
            else trials.report(network, sys.executable, 1, *words, hosts=HOSTS)
        )  # fmt: skip
        return made

    with trials.sharing_cores(), trials.linked_hosts(HOSTS, MBIT) as network:
        made = runs(OVER_LINK, run, LINK_ROUNDS)
    return _with(found, {"link": table(made, "seconds")}, {"link_rounds": LINK_ROUNDS})


def _with(found: Measured, tables: Tables, figures: Measured) -> Measured:
    """What was found, with more tables and figures."""
    return {"tables": {**found.get("tables", {}), **tables}, "figures": {**found.get("figures", {}), **figures}}


PARTS = {"host": on_host, "link": over_link}


if __name__ == "__main__":
    document.measure("bench.pages.torch", str(__doc__), lambda _: datasets.need(datasets.MNIST) or {}, parts=PARTS)
