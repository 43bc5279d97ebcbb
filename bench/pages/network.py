"""Compares apps.mlp with PyTorch, DDP and torchft: seconds to a test accuracy on MNIST.

python -m bench.pages.network [--torchft FOLDER] [--json docs/network.json]

--torchft: the folder that torchft lies in, where the environment lacks it.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import document, jobs
from bench.harness.datasets import MNIST, need
from bench.harness.document import Measured, Table, reached
from bench.harness.timing import turns

TARGET, ROUNDS = 0.98, 3
Epochs = list[dict[str, float]]
Environment = dict[str, str]


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
    "torchft LocalSGD, 2 processes": Contender(
        "localsgd", 2, {"batch": 64, "step": 0.2, "epochs": 6, "warm_up": 0.1, "every": 50}
    ),
}


def run(contender: Contender, seed: int, more: Environment) -> Epochs:
    """What one run reports of its epochs. `more`: variables of the environment that PyTorch's ways need."""
    settings = contender.settings
    if contender.way == "ours":
        words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
        found: Epochs = jobs.report(contender.processes, "apps.mlp", MNIST, *words, "--seed", seed)["epochs"]
        return found
    options = json.dumps({**settings, "way": contender.way, "seed": seed})
    found = jobs.processes(contender.processes, ["-m", "bench.pages.digits", str(MNIST), options], more)
    return found


@contextmanager
def lighthouse(torchft: Path | None) -> Iterator[Environment | None]:
    """The environment of torchft, with its lighthouse at work; None where it is not installed."""
    path = [] if torchft is None else [str(torchft)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *path])}
    code = (
        "import time, sys; from torchft.coordination import LighthouseServer\n"
        "server = LighthouseServer(bind='127.0.0.1:0', min_replicas=2, join_timeout_ms=1000)\n"
        "print(server.address(), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        address = server.stdout.readline().strip()
        yield {"PYTHONPATH": env["PYTHONPATH"], "TORCHFT_LIGHTHOUSE": address} if address else None
        server.stdin.close()


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


def measured(options: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    need(MNIST)
    with lighthouse(options.torchft) as more:
        chosen = {name: one for name, one in CONTENDERS.items() if more or one.way != "localsgd"}
        runs = turns({name: lambda seed, one=one: run(one, seed, more or {}) for name, one in chosen.items()}, ROUNDS)
    return {"tables": {"runs": table(runs)}, "figures": {"rounds": ROUNDS}}


def add_options(parser: ArgumentParser) -> None:
    """Add what this command alone has."""
    parser.add_argument("--torchft", type=Path)


if __name__ == "__main__":
    document.measure("bench.pages.network", str(__doc__), measured, add_options=add_options)
