"""A training on simulated ranks of which one may be slow: seconds, epochs, waits, bytes, lags. The same in each run."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import malt
from bench.harness import traffic
from bench.papers.mllib.counting import Watch
from bench.papers.mllib.ways import parts
from bench.papers.modes.way import RANKS, Learner, Task, Way
from dstorm.queues.statistics import added
from malt.commands.plan.prediction import NETWORKS

NETWORK = "InfiniBand HDR"
LATENCY_S, BANDWIDTH = NETWORKS[NETWORK]
SLOW = 3.0
"""How many times as long the slow rank, the last, computes."""


class Pace(NamedTuple):
    """How long ranks compute."""

    row_s: float
    """Seconds for a row."""
    slow: float
    """So many times as long on the last rank."""

    def of(self, rank: int) -> float:
        """Seconds that `rank` takes for a row."""
        return self.row_s * (self.slow if rank == RANKS - 1 else 1.0)


class Tally(NamedTuple):
    """What a rank has done so far."""

    rows: int = 0
    computed_s: float = 0.0
    ended_s: float = 0.0
    """The end of its last step."""
    traffic: malt.Statistics = malt.Statistics()


class Count(NamedTuple):
    """What a training has taken until rank 0's model has reached the objective."""

    steps: float
    """Exchanges of rank 0 until then. Infinity: it was not reached, and what follows is until the end. NaN: the
    training diverged."""
    exchanges: int = 0
    """Those of rank 0."""
    seconds: float = 0.0
    """Virtual ones, since all ranks have begun."""
    epochs: float = 0.0
    """Rows that all ranks have visited, in rows of the data."""
    waited_s: float = 0.0
    """Waited for others, the mean of all ranks."""
    exchanged_s: float = 0.0
    """Neither computed nor waited for others: what messages have taken. The mean of all ranks."""
    hottest: int = 0
    """Bytes sent and received by the rank that moves most."""
    lag: float = 0.0
    """Of a merged model, in steps of the receiver: the mean."""
    most_lag: int = 0
    merged: int = 0
    overwritten: int = 0
    """Models that a newer one of the same rank has replaced before they were merged."""


class Race:
    """A training as all ranks of a simulation see it."""

    def __init__(self, task: Task, way: Way, pace: Pace, most: int) -> None:
        self._task, self._way, self._pace = task, way, pace
        self._watch = Watch(task, most, alone=not way.is_collective)
        self._tallies = [Tally()] * RANKS
        self._ended: Count | None = None

    def run(self, rank: int, seed: int) -> None:
        """Train as `rank` until rank 0's model has reached the objective. Collective."""
        task, generator = self._task, np.random.default_rng([seed, rank])
        learner = task.learner(self._way)
        length = task.rows // RANKS if self._way.is_collective else task.every
        malt.barrier()
        start = malt.clock()
        for number, part in enumerate(parts(length, lambda: task.order(generator)), 1):
            self._step(learner, part, start)
            if self._watch.reached(number, learner.model):
                if self._ended is None or self._way.is_collective:  # there all have taken the same steps
                    self._ended = self._count(malt.clock() - start)
                break
        learner.finish()

    def _step(self, learner: Learner, part: Any, start: float) -> None:
        """Compute, exchange, and note what both have taken."""
        rank = malt.rank()
        before, busy_s = self._tallies[rank], self._pace.of(rank) * len(part)
        malt.compute(busy_s)
        learner.learn(part)
        learner.exchange()
        carried = reduce(added, [vector.statistics() for vector in learner.vectors])
        ended_s = malt.clock() - start
        self._tallies[rank] = Tally(before.rows + len(part), before.computed_s + busy_s, ended_s, carried)

    def _count(self, seconds: float) -> Count:
        """What it has taken until now. A rank's unfinished step does not count."""
        tallies = self._tallies
        carried = [one.traffic for one in tallies]
        lags = [one.lag for one in carried if one.lag.count]
        merged = sum(lag.count for lag in lags)
        waited = [one.waited_s for one in carried]
        others = [one.ended_s - one.computed_s - one.traffic.waited_s for one in tallies]
        edges = [{peer: edge.bytes_sent for peer, edge in one.peers.items()} for one in carried]
        return Count(
            self._watch.steps(), len(self._watch.objectives), seconds,
            epochs=sum(one.rows for one in tallies) / self._task.rows, waited_s=sum(waited) / RANKS,
            exchanged_s=sum(others) / RANKS, hottest=max(traffic.moved(edges)),
            lag=sum(lag.mean * lag.count for lag in lags) / max(merged, 1),
            most_lag=max((lag.max for lag in lags), default=0), merged=merged,
            overwritten=sum(one.overwritten for one in carried),
        )  # fmt: skip

    @property
    def count(self) -> Count:
        """What it has taken, once it is over."""
        assert self._ended
        return self._ended


def count(task: Task, way: Way, pace: Pace, most: int, seed: int = 0) -> Count:
    """What the training takes, on `RANKS` simulated ranks. `most`: exchanges of rank 0, at most."""
    race, network = Race(task, way, pace, most), malt.Network(LATENCY_S, BANDWIDTH)
    network.buffers = False
    try:
        malt.simulate(lambda rank: race.run(rank, seed), RANKS, seed, network)
    except FloatingPointError:
        return Count(math.nan)
    return race.count
