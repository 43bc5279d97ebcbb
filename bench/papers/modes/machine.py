"""The modes on real ranks of this machine: apps.svm as a user runs it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import malt
from apps.linear import reading
from bench.benchmarks.svm import task
from bench.harness import jobs
from bench.harness.timing import turns

EMBEDDED_TARGET = 0.37
"""Of the embedded rows, 5 % above the optimum."""


class Real(NamedTuple):
    """A number of ranks in a mode, along the graph "all"."""

    ranks: int
    sync: str
    seconds: list[float]
    """To the objective, a run each; infinity: it was not reached."""
    epochs: float
    """Until then, the median."""
    sent: float
    """Bytes that all ranks have sent until then, the median."""
    overwritten: float
    """Of the messages that all ranks have sent until then, the share that was never merged: the median."""


def runs(rows: task.Task, ranks: tuple[int, ...], rounds: int, syncs: tuple[str, ...]) -> Iterator[Real]:
    """What each of these modes has taken on so many ranks, in turns: a round is a run of each, with its own seed."""

    def run(size: int, sync: str, seed: int) -> jobs.Report:
        return rows.report(size, "--graph", "all", "--sync", sync, "--epochs", rows.epochs, "--seed", seed)

    contenders = {(size, sync): partial(run, size, sync) for size in ranks for sync in syncs}
    for (size, sync), made in turns(contenders, rounds).items():
        yield _real(size, sync, rows.target, made)


def _real(ranks: int, sync: str, target: float, made: list[jobs.Report]) -> Real:
    seconds = [jobs.seconds_to(target, "objective", one) for one in made]
    last = [jobs.first(one["epochs"], "objective", target) or one["epochs"][-1] for one in made]
    lost = [one["overwritten"] / max(1, one["merged"] + one["overwritten"]) for one in last]
    epochs, sent = ([one[name] for one in last] for name in ("epoch", "bytes_sent"))
    return Real(ranks, sync, seconds, *map(statistics.median, (epochs, sent, lost)))


def embedded() -> task.Task:
    """The census data that the project contains."""
    data = malt.open_svmlight(reading.EMBEDDED / "train.svm.xz")
    return task.Task("a9a", data, EMBEDDED_TARGET, ("apps.svm",), 1000, 5)
