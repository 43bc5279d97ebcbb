"""Measures apps.autoencoder on 1, 2 and 4 ranks in turns, beside what the authors of Qjam (2010) report.

python -m bench.papers.qjam [--quick] [--json docs/qjam.json]

The patches are those of MNIST; where that is missing, of the digits of scikit-learn.
"""

from __future__ import annotations

import os
import statistics
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import malt
from apps.autoencoder import network
from bench.harness import document, jobs
from bench.harness.datasets import MNIST
from bench.harness.document import Measured, Table, Tables, say
from bench.harness.rest import Others
from bench.harness.timing import turns
from dstorm.words import count

Run = dict[str, Any]
"""What some ranks took: medians of the rounds, in seconds, and bytes of chunks."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""A rank has one thread: the speed of one rank would else be that of two."""
PIXELS, HIDDEN = 64, 25


class Scale(NamedTuple):
    """How much is measured."""

    patches: int
    ranks: tuple[int, ...]
    """The first is 1."""
    rounds: int
    iterations: int
    """Of L-BFGS."""
    hosts: tuple[int, ...]
    """Of the simulation."""


WHOLE, QUICK = Scale(50_000, (1, 2, 4), 3, 50, (1, 2, 4, 8, 16)), Scale(500, (1, 2), 1, 3, (1, 4))


class Reported(NamedTuple):
    """What Qjam's authors report of some workers."""

    workers: int
    seconds: float
    iteration_s: float


QJAM = (Reported(1, 5030, 10.0), Reported(2, 2350, 4.7), Reported(4, 1253, 2.5), Reported(8, 914, 1.8),
        Reported(16, 703, 1.4))  # fmt: skip
QJAM_PATCHES = 100_000


def runs(scale: Scale) -> tuple[list[Run], float]:
    """What each number of ranks takes, and by how much of a loss their losses differ from those of one, at most."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    words = ("apps.autoencoder", *([MNIST] if MNIST.exists() else []), "--epochs", scale.iterations, "--tolerance", 0,
             "--hidden", HIDDEN, "--patches", scale.patches)  # fmt: skip
    contenders = {ranks: lambda _, ranks=ranks: jobs.report(ranks, *words) for ranks in scale.ranks}
    made = turns(contenders, scale.rounds)
    error = max(_error(made[1][0], one) for found in made.values() for one in found)
    return [_run(ranks, found) for ranks, found in made.items()], error


def _run(ranks: int, found: Sequence[jobs.Report]) -> Run:
    travelled = [epoch["chunk_bytes"] for epoch in found[0]["epochs"]]
    return {
        "ranks": ranks, "chunk_bytes": travelled[0], "later_bytes": travelled[-1] - travelled[0],
        "seconds": statistics.median(one["epochs"][-1]["seconds"] for one in found),
        "iteration_s": statistics.median(map(_iteration_s, found)),
    }  # fmt: skip


def _iteration_s(report: jobs.Report) -> float:
    """Seconds of an iteration after the first."""
    epochs = report["epochs"]
    return float(epochs[-1]["seconds"] - epochs[0]["seconds"]) / (len(epochs) - 1)


def _error(one: jobs.Report, other: jobs.Report) -> float:
    """By how much of a loss the losses differ, at most."""
    pairs = zip(one["epochs"], other["epochs"], strict=True)
    return max(abs(theirs["loss"] / mine["loss"] - 1) for mine, theirs in pairs)


def modelled(patches: int, ranks: int, patch_s: float, iterations: int = 3) -> Run:
    """What simulated ranks take, each on a host of its own, for which a patch is `patch_s` seconds of work. Local.

    The sums of an iteration are as large as those of apps.autoencoder, and zeros.
    """
    rows = np.zeros((patches, PIXELS))
    rows.flags.writeable = False
    w = np.zeros(network.length(PIXELS, HIDDEN))
    sums = network.sums(w, rows[:1])

    def counted(_: Any, chunk: Any) -> tuple[Any, ...]:
        malt.compute(patch_s * len(chunk))
        return sums

    def on_rank(rank: int) -> list[float]:
        ends = [malt.clock()]
        for _ in range(iterations):
            malt.map_reduce(counted, w, rows if rank == 0 else None)
            ends.append(malt.clock())
        return ends

    ends = np.max(malt.simulate(on_rank, ranks, network=malt.Network(*jobs.GIGABIT)), axis=0)
    first, *later = np.diff(ends).tolist()
    return {"ranks": ranks, "first_s": first, "iteration_s": statistics.median(later)}


def measured(options: Namespace) -> Measured:
    """All figures of the page. It starts jobs."""
    scale, others = options.scale, Others()
    made, error = runs(scale)
    share, patch_s = others.share(), made[0]["iteration_s"] / scale.patches
    say(f"simulated hosts: {', '.join(map(str, scale.hosts))}")
    pictures = "MNIST" if MNIST.exists() else "digits"
    about = {**scale._asdict(), "pictures": pictures, "cores": os.cpu_count(), "patch_s": patch_s}
    hosts = [modelled(QJAM_PATCHES, ranks, patch_s) for ranks in scale.hosts]
    return {"about": about, "runs": made, "error": error, "others": share, "modelled": hosts}


def tables(found: Measured) -> Tables:
    """The table of the page."""
    own = [Reported(one["ranks"], one["seconds"], one["iteration_s"]) for one in found["runs"]]
    hosts = [Reported(one["ranks"], 0.0, one["iteration_s"]) for one in found["modelled"]]
    patches = found["about"]["patches"]
    rows = [
        *_rows(f"apps.autoencoder, {patches:,} patches", "rank", own),
        *_rows("malt.map_reduce", "simulated host", hosts),
        *_rows(f"Qjam, {QJAM_PATCHES:,} patches", "worker", QJAM),
    ]
    heads = ["", "speedup of an iteration", "ms an iteration", "seconds in all", "speedup in all"]
    return {"iterations": [heads, *rows]}


def _rows(name: str, unit: str, some: Sequence[Reported]) -> Table:
    """What each number of workers takes, beside the first. Of hosts the seconds in all are not known."""
    rows = []
    for one in some:
        in_all = [f"{one.seconds:,.2f}", f"{some[0].seconds / one.seconds:.2f}"] if one.seconds else ["-", "-"]
        faster = f"{some[0].iteration_s / one.iteration_s:.2f}"
        rows.append([f"{name}, {count(one.workers, unit)}", faster, f"{1e3 * one.iteration_s:,.1f}", *in_all])
    return rows


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say."""
    about, last = found["about"], found["runs"][-1]
    return {
        **about, "error": found["error"], "others": found["others"], "patch_us": 1e6 * about["patch_s"],
        "first": ", ".join(f"{one['first_s']:.2f} s on {one['ranks']}" for one in found["modelled"]),
        "all_hosts": ", ".join(str(one["ranks"]) for one in found["modelled"]),
        "megabytes": last["chunk_bytes"] / 1e6, "later": sum(one["later_bytes"] for one in found["runs"]),
    }  # fmt: skip


if __name__ == "__main__":
    document.measure("bench.papers.qjam", str(__doc__), measured, tables, scales=(WHOLE, QUICK))
