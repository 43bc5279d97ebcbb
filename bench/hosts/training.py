"""Trains a linear SVM on ranks of several hosts, in several ways in turns.

    malt run -n 4 --hosts a:2,b:2 -m bench.hosts.training PLAN --json FILE

PLAN is a `Plan` as JSON. FILE gets the results; where the plan asks for it, first how long ranks compute.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import malt
from bench.benchmarks.svm import task
from bench.harness import datasets, jobs
from bench.harness.timing import turns
from bench.hosts import ways
from bench.hosts.ways import WAYS, Way
from bench.hosts.wire import sent_by_host
from bench.papers.mllib import ways as ways_to_send
from malt.models import linear
from malt.models.linear import Examples, Order

EVERY = 1000
"""Examples of a rank between two exchanges."""
TARGET = 0.192
"""Of the objective on rcv1-ccat, whose optimum is 0.1886."""
QUICK_TARGET = 0.3
"""One that few exchanges reach."""
KEPT = 400
"""Models of rank 0 that are kept of a run, at most."""
PACED = 60
"""Parts that ranks train at once to measure their compute."""


class Plan(NamedTuple):
    """What is run."""

    ways: Sequence[str]
    """Names of `WAYS`."""
    rounds: int
    limit_s: float
    """A run in which nobody waits ends after so long."""
    exchanges: int
    """One in which ranks wait for each other ends after so many exchanges of each rank."""
    target: float = TARGET
    """The objective to reach."""
    compute_s: float = 0.0
    """What simulated ranks take for the examples before an exchange. Real ones take what they take."""
    tells_pace: bool = False
    """Whether the compute of ranks is measured first."""

    def as_json(self) -> str:
        """The plan for a command line."""
        return json.dumps(self._asdict())


class Rows(NamedTuple):
    """What is trained on."""

    everything: Examples
    mine: Examples
    width: int
    eta0: float


class Mark(NamedTuple):
    """What one rank has done since the start of a run."""

    seconds: float
    exchanges: int
    wire: int
    """Bytes that its host has sent, by the counter of its interface; 0 but on the first rank of the host."""


class Run:
    """One training. Its constructor is Collective: all ranks make one together."""

    def __init__(self, way: Way, rows: Rows, plan: Plan, seed: int) -> None:
        self._way, self._plan, self._rows = way, plan, rows
        self._learner = ways.learner(way, rows.mine, rows.width, rows.eta0)
        self._parts = parts(rows, np.random.default_rng([seed, malt.rank()]))
        self._marks: list[Mark] = []
        keeps = KEPT if malt.rank() == 0 else 0
        self._models = np.empty((keeps, rows.width + 1), np.float32)
        self._models.fill(0)  # its pages are there before the clock starts
        self._is_first = malt.hosts().index(malt.hosts()[malt.rank()]) == malt.rank()
        self._sent = 0
        """What the host had sent before."""

    def train(self) -> None:
        """Train until the plan ends it. Collective at both ends."""
        plan, waits, apart_s = self._plan, self._way.waits, self._plan.limit_s / KEPT
        self._sent = self._wire()
        malt.barrier()
        start, next_s = malt.clock(), 0.0
        for number, part in enumerate(self._parts, 1):
            malt.compute(plan.compute_s)
            self._learner.learn(part)
            self._learner.exchange()
            now = malt.clock() - start
            if now >= next_s and len(self._marks) < KEPT:
                self._note(now, number)
                next_s = 0.0 if waits else now + apart_s
            if number >= plan.exchanges if waits else now >= plan.limit_s:
                break
        self._learner.finish()

    def _note(self, now: float, number: int) -> None:
        if len(self._models):
            self._models[len(self._marks)] = self._learner.model
        self._marks.append(Mark(now, number, self._wire() - self._sent))

    def _wire(self) -> int:
        return sent_by_host() if self._is_first else 0

    def result(self) -> dict[str, Any]:
        """When rank 0's model has reached the target, and what had been done by then. Collective.

        "seconds" is None where it has not.
        """
        objectives: list[float] = []
        if malt.rank() == 0:
            for model in self._models[: len(self._marks)]:
                objectives.append(linear.objective(task.PROBLEM, self._rows.everything, model))
                if objectives[-1] <= self._plan.target:
                    break
        everybody = malt.allgather([list(mark) for mark in self._marks])
        if malt.rank() != 0:
            return {}
        at = self._marks[len(objectives) - 1]
        then = [_last(marks, at.seconds) for marks in everybody]
        return {
            "seconds": at.seconds if objectives[-1] <= self._plan.target else None,
            "lowest": min(objectives),
            "ended_s": self._marks[-1].seconds,
            "exchanges": at.exchanges,
            "epochs": at.exchanges * EVERY / len(self._rows.mine.labels),
            "wire": sum(mark.wire for mark in then),
        }


def parts(rows: Rows, generator: np.random.Generator) -> Iterator[Order]:
    """The rows before each exchange, epoch after epoch. Endless."""
    return ways_to_send.parts(EVERY, lambda: linear.visiting_order(len(rows.mine.labels), generator))


def _last(marks: Sequence[Sequence[float]], seconds: float) -> Mark:
    """The last mark by then."""
    return max((Mark(*mark) for mark in marks if mark[0] <= seconds), default=Mark(0.0, 0, 0))


def rows() -> Rows:
    """The rows of rcv1-ccat, dealt to the ranks. Collective."""
    data = malt.open_svmlight(datasets.RCV1)
    dealt = np.random.default_rng(0).permutation(len(data.y))
    everything = linear.examples(data.X, data.y, dealt)
    mine = linear.examples(data.X, data.y, malt.shard(dealt))
    width = data.X.shape[1]
    return Rows(everything, mine, width, linear.first_step(task.PROBLEM, everything, width, malt.size()))


def compute_s(found: Rows) -> float:
    """Seconds of the examples before an exchange while all ranks train at once, and nobody exchanges. Collective."""
    learner = ways.learner(WAYS["bsp, all"], found.mine, found.width, found.eta0)
    some = parts(found, np.random.default_rng(malt.rank()))
    for part, _ in zip(some, range(PACED // 4), strict=False):
        learner.learn(part)
    malt.barrier()
    start = time.perf_counter()
    for part, _ in zip(some, range(PACED), strict=False):
        learner.learn(part)
    took_s = (time.perf_counter() - start) / PACED
    learner.finish()
    return float(statistics.mean(malt.allgather(took_s)))


def results(found: Rows, plan: Plan) -> list[dict[str, Any]]:
    """The result of each way, in turns, as often as the plan says; empty but on rank 0. Collective."""

    def ran(name: str, seed: int) -> dict[str, Any]:
        run = Run(WAYS[name], found, plan, seed)
        run.train()
        result = {"way": name, "seed": seed, **run.result()}
        malt.barrier()
        return result

    made = turns({name: partial(ran, name) for name in plan.ways}, plan.rounds)
    return [one for some in made.values() for one in some]


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    malt.init()
    linear.compile_kernels()
    found = rows()
    measured = []
    if plan.tells_pace:
        measured = [{"compute_s": compute_s(found)}]
    jobs.give(measured + results(found, plan))


if __name__ == "__main__":
    main()
