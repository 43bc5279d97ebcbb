"""Compares what a simulation predicts with what two hosts do, joined by a slow link: seconds of apps.svm to a target.

    python -m bench.planning TRAIN [--every 1000] [--sync bsp]

Two ranks on each of two network namespaces, for three speeds of the link and three graphs. It needs what
bench/pages/link.py needs, and Open MPI. The compute between two exchanges is that of four ranks on this machine, which
share its cores. Latency and bandwidth are those of exchanges along a ring, which are no part of the training. The
target is what all graphs reach in the simulation. Messages should be large, as for rows of many features: small ones
take what the cores make of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import statistics
import tempfile
from pathlib import Path

import malt
from apps.svm import program
from bench import jobs
from bench.pages import link
from malt.commands.plan.losses import Charge
from malt.session.session import world

JOB = ["-n", "4", "--hosts", f"here:2,{link.SECOND}:2"]
RANKS, HOSTS = 4, ("here", "here", "there", "there")
MBIT = (20, 100, 500)
GRAPHS = ("all", "exponential", "ring")
STAGES = 6
"""Latencies of an exchange under bsp: two stages and an acknowledgement, there and back."""
NUMBERS = 50_000
"""Of a message whose time gives the bandwidth."""
SCATTERS = """
import json, statistics, time, malt
medians = []
for numbers, count in ((1, 300), ({numbers}, 15)):
    v, times = malt.vector(numbers, graph="ring", sync="bsp"), []
    malt.barrier()
    for _ in range(count):
        start = time.perf_counter()
        v.scatter()
        v.gather()
        times.append(time.perf_counter() - start)
    medians.append(statistics.median(times))
if malt.rank() == 1:
    open({file!r}, "w").write(json.dumps(medians))
"""
"""Rank 1 sends to the other host."""
Losses = list[tuple[float, float]]
WAYS = [(mbit, graph) for mbit in MBIT for graph in GRAPHS]


def compute_s(words: list[str], every: int) -> float:
    """Seconds of compute between two exchanges, where ranks exchange next to nothing."""
    made = jobs.report(RANKS, "apps.svm", *words, "--graph", "ring", "--exchange-every", 50 * every)
    return float(made["final"]["seconds"] / (made["epochs"][-1]["examples"] / RANKS) * every)


def network(mbit: int) -> malt.Network:
    """The network as MPI sees it: its latency and bandwidth, while both directions of the link are in use."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "medians")
        link.run_malt(mbit, *JOB, "-c", SCATTERS.format(file=str(file), numbers=NUMBERS))
        small_s, large_s = json.loads(file.read_text())
    found = malt.Network(small_s / STAGES, 4 * NUMBERS / (large_s - small_s), list(HOSTS))
    print(f"{mbit:4} Mbit/s is {found}", flush=True)
    return found


def predicted(words: list[str], graph: str, apart_s: float, network: malt.Network) -> Losses:
    """Seconds and objective of each epoch on simulated ranks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")

        def live(rank: int) -> None:
            world().meter = Charge(apart_s)
            program.run([*words, "--graph", graph, "--json", str(file)])

        with contextlib.redirect_stdout(io.StringIO()):
            malt.simulate(live, RANKS, network=network)
        return _losses(file)


def measured(words: list[str], way: tuple[int, str]) -> Losses:
    """Seconds and objective of each epoch on the two hosts."""
    mbit, graph = way
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")
        link.run_malt(mbit, *JOB, "-m", "apps.svm", *words, "--graph", graph, "--json", str(file))
        return _losses(file)


def _losses(file: Path) -> Losses:
    epochs = json.loads(file.read_text(encoding="utf-8"))["epochs"]
    return [(epoch["seconds"], epoch["objective"]) for epoch in epochs]


def seconds_to(target: float, losses: Losses) -> float:
    """Seconds until an epoch ends at the target or below; infinity if none does."""
    return next((seconds for seconds, loss in losses if loss <= target), math.inf)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=str(__doc__).splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sync", default="bsp")
    options = parser.parse_args()
    words = [str(options.train.resolve()), "--sync", options.sync, "--epochs", str(options.epochs)]
    apart_s, networks = compute_s(words, options.every), {mbit: network(mbit) for mbit in MBIT}
    words += ["--exchange-every", str(options.every)]
    losses = {(mbit, graph): predicted(words, graph, apart_s, networks[mbit]) for mbit, graph in WAYS}
    target = 1.001 * max(found[-1][1] for found in losses.values())
    print(f"{apart_s:.3g} s of compute between exchanges, target {target:.4f}", flush=True)
    expected, found = {way: seconds_to(target, losses[way]) for way in WAYS}, {}
    for way in WAYS:
        found[way] = seconds_to(target, measured(words, way))
        name = f"{way[0]:4} Mbit/s, {way[1]:12}"
        print(f"{name} predicted {expected[way]:8.3f} s, measured {found[way]:8.3f} s", flush=True)
    errors = [abs(expected[way] / found[way] - 1) for way in WAYS]
    print(f"median error {statistics.median(errors):.0%}, largest {max(errors):.0%}")
    for name, times in (("predicted", expected), ("measured", found)):
        best = sorted(times, key=lambda way: times[way])[:3]
        print(f"the three best as {name}: {', '.join(f'{graph} at {mbit} Mbit/s' for mbit, graph in best)}")


if __name__ == "__main__":
    main()
