"""Compares what a simulation predicts with what two hosts do, joined by a slow link: seconds of apps.svm to a target.

    python -m bench.planning [TRAIN] [--target 0.37] [--every 100] [--sync bsp]

Two ranks on each of two network namespaces, for three speeds of the link and three graphs. It needs what
bench/pages/link.py needs, and Open MPI. The compute between two exchanges is that of four ranks on this machine, which
share its cores.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
from pathlib import Path

import malt
from apps.svm import program
from bench import jobs
from bench.pages import link
from malt.commands.plan.losses import Charge
from malt.session.session import world

RANKS, HOSTS = 4, ("here", "here", "there", "there")
MBIT = (10, 50, 250)
GRAPHS = ("all", "exponential", "ring")
LATENCY_S = 50e-6
"""Of a message between two namespaces: half of a Put and a flush."""
WAYS = [(mbit, graph) for mbit in MBIT for graph in GRAPHS]


def compute_s(words: list[str], every: int) -> float:
    """Seconds of compute between two exchanges, where ranks exchange next to nothing."""
    made = jobs.report(RANKS, "apps.svm", *words, "--graph", "ring", "--exchange-every", 50 * every)
    return float(made["final"]["seconds"] / (made["epochs"][-1]["examples"] / RANKS) * every)


def predicted(words: list[str], way: tuple[int, str], apart_s: float, target: float) -> float:
    """Seconds to the target on simulated ranks."""
    mbit, graph = way
    network = malt.Network(LATENCY_S, mbit * 1e6 / 8, list(HOSTS))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")

        def live(rank: int) -> None:
            world().meter = Charge(apart_s)
            program.run([*words, "--graph", graph, "--json", str(file)])

        with contextlib.redirect_stdout(io.StringIO()):
            malt.simulate(live, RANKS, network=network)
        return jobs.seconds_to(target, "objective", json.loads(file.read_text(encoding="utf-8")))


def measured(words: list[str], way: tuple[int, str], target: float) -> float:
    """Seconds to the target on the two hosts."""
    mbit, graph = way
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")
        options = ["-n", str(RANKS), "--hosts", f"here:2,{link.SECOND}:2", "-m", "apps.svm", *words]
        link.run_malt(mbit, *options, "--graph", graph, "--json", str(file))
        return jobs.seconds_to(target, "objective", json.loads(file.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=str(__doc__).splitlines()[0])
    parser.add_argument("train", nargs="?", type=Path)
    parser.add_argument("--target", type=float, default=0.37)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--sync", default="bsp")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    train = [] if options.train is None else [str(options.train.resolve())]
    words = [*train, "--sync", options.sync, "--epochs", str(options.epochs)]
    apart_s = compute_s(words, options.every)
    words += ["--exchange-every", str(options.every)]
    print(f"{apart_s:.3g} s of compute between two exchanges", flush=True)
    expected = {way: predicted(words, way, apart_s, options.target) for way in WAYS}
    found = {}
    for way in WAYS:
        found[way] = statistics.median(measured(words, way, options.target) for _ in range(options.rounds))
        name = f"{way[0]:4} Mbit/s, {way[1]:12}"
        print(f"{name} predicted {expected[way]:8.3f} s, measured {found[way]:8.3f} s", flush=True)
    errors = [abs(expected[way] / found[way] - 1) for way in WAYS]
    print(f"median error {statistics.median(errors):.0%}, largest {max(errors):.0%}")
    for name, times in (("predicted", expected), ("measured", found)):
        best = sorted(times, key=lambda way: times[way])[:3]
        print(f"the three best as {name}: {', '.join(f'{graph} at {mbit} Mbit/s' for mbit, graph in best)}")


if __name__ == "__main__":
    main()
