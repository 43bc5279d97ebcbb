"""Compares apps.mlp with PyTorch and DDP: seconds to a test accuracy on MNIST.

python -m bench.pages.network [--json docs/network.json]
"""

from __future__ import annotations

import json
import math
import statistics
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from bench.harness import document, jobs
from bench.harness.datasets import MNIST, need
from bench.harness.document import Measured, Table, reached
from bench.harness.timing import turns

TARGET, ROUNDS = 0.98, 3
Epochs = list[dict[str, float]]


class Contender(NamedTuple):
    """One way to train, at the settings that were best of the grid."""

    way: str
    """"ours", or that of `digits.Options`."""
    processes: int
    settings: Mapping[str, Any]
    """`digits.Options`, or options of apps.mlp, by their names."""


CONTENDERS = {
    "apps.mlp, 1 rank": Contender("ours", 1, {"batch": 128, "step": 0.25, "epochs": 4, "warm_up": 0.1}),
    "apps.mlp, 2 ranks": Contender(
        "ours", 2, {"batch": 128, "step": 0.4, "epochs": 5, "warm_up": 0.1, "exchange_every": 4, "sync": "bsp"}
    ),
    "PyTorch, 2 threads": Contender("torch", 1, {"batch": 256, "step": 0.5, "epochs": 4, "warm_up": 0.2, "threads": 2}),
    "DDP over gloo, 2 processes": Contender("ddp", 2, {"batch": 128, "step": 0.5, "epochs": 4, "warm_up": 0.2}),
}


def run(contender: Contender, seed: int) -> Epochs:
    """What one run reports of its epochs."""
    settings = contender.settings
    if contender.way == "ours":
        words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
        found: Epochs = jobs.report(contender.processes, "apps.mlp", MNIST, *words, "--seed", seed)["epochs"]
        return found
    options = json.dumps({**settings, "way": contender.way, "seed": seed})
    found = jobs.processes(contender.processes, ["-m", "bench.pages.digits", str(MNIST), options], {})
    return found


def seconds(epochs: Epochs) -> float:
    """Seconds of training until the target; infinity where no epoch ends there."""
    return float(jobs.first(epochs, "test_accuracy", TARGET, rising=True).get("seconds", math.inf))


def table(runs: Mapping[str, list[Epochs]]) -> Table:
    """A row for each contender that has run."""
    heads = ["", f"s to {TARGET}", "from, to", "accuracy at the end", "batch of a process", "largest step", "warm-up"]
    rows = [[*heads, "epochs"]]
    for name, found in runs.items():
        own = CONTENDERS[name].settings
        times = [seconds(epochs) for epochs in found]
        ends = statistics.median(epochs[-1]["test_accuracy"] for epochs in found)
        rows.append([
            name, reached(statistics.median(times)), f"{reached(min(times))}, {reached(max(times))}", f"{ends:.4f}",
            str(own["batch"]), f"{own['step']:g}", f"{own['warm_up']:g}", str(own["epochs"]),
        ])  # fmt: skip
    return rows


def measured(_: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    need(MNIST)
    runs = turns({name: partial(run, one) for name, one in CONTENDERS.items()}, ROUNDS)
    return {"tables": {"runs": table(runs)}, "figures": {"rounds": ROUNDS}}


if __name__ == "__main__":
    document.measure("bench.pages.network", str(__doc__), measured)
