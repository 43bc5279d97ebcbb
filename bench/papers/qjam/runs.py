"""Runs of apps.autoencoder on some ranks in turns, and iterations of malt.map_reduce on simulated hosts."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps.autoencoder import network
from bench.harness import jobs
from bench.harness.document import say
from bench.harness.timing import turns

Run = dict[str, Any]
"""What some ranks took on some patches: medians of the rounds, in seconds, and bytes of chunks."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""A rank has one thread: the speed of one rank would else be that of two."""
PIXELS, HIDDEN = 64, 25


def runs(
    folder: Path | None, patches: Sequence[int], ranks: Sequence[int], rounds: int, iterations: int
) -> Iterator[tuple[Run, float]]:
    """Each run, and by how much of a loss its losses differ from those of the first run of the patches, at most.

    `folder`: that of MNIST; None: the digits of scikit-learn. `iterations`: of L-BFGS. Of `ranks` the first is 1.
    """
    os.environ.update(dict.fromkeys(THREADS, "1"))
    words: tuple[object, ...] = () if folder is None else (folder,)
    words += ("--epochs", iterations, "--tolerance", 0, "--hidden", HIDDEN)
    for count in patches:
        say(f"{count:,} patches")
        arguments = ("apps.autoencoder", *words, "--patches", count)
        made = turns({some: lambda _, some=some, own=arguments: jobs.report(some, *own) for some in ranks}, rounds)
        first = made[ranks[0]][0]
        for some, found in made.items():
            yield _run(count, some, found), max(_error(first, one) for one in found)


def _run(patches: int, ranks: int, found: Sequence[jobs.Report]) -> Run:
    travelled = [epoch["chunk_bytes"] for epoch in found[0]["epochs"]]
    return {
        "patches": patches, "ranks": ranks, "chunk_bytes": travelled[0], "later_bytes": travelled[-1] - travelled[0],
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
    return {"patches": patches, "ranks": ranks, "first_s": first, "iteration_s": statistics.median(later)}
