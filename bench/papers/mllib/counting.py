"""Steps and bytes that a way to train takes to the objective, on simulated ranks: a seed gives the same counts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import malt
from bench.harness import jobs, traffic
from bench.papers.mllib.task import Task
from bench.papers.mllib.ways import Setting, Training, Way
from malt.models import linear

RANKS = 8
_DIVERGED = 10.0
"""So many times the first objective, the training has diverged."""


class Count(NamedTuple):
    """What a training has taken."""

    way: Way
    setting: Setting
    steps: float
    """Steps of communication to the objective; infinity: it was not reached. NaN: the training diverged."""
    bytes: int = 0
    """Sent, in all."""
    hottest: int = 0
    """Sent and received by the rank that moves most."""
    seconds: float = 0.0
    """Virtual ones, on the network of the paper: 1 Gbit/s."""


class Watch:
    """The objective after each step, and whether it ends the training: the same answer on all ranks of a simulation.

    `goal`: what has the objective of a model, that of the first one, and the one to reach. `alone`: ranks have models
    of their own, and rank 0's counts.
    """

    def __init__(self, goal: Any, most: int, alone: bool = False) -> None:
        self._goal, self._most, self._alone = goal, most, alone
        self._at_first = goal.at_first
        self.objectives: list[float] = []

    @property
    def _is_over(self) -> bool:
        last = self.objectives[-1] if self.objectives else math.inf
        return last <= self._goal.target or self.diverged or len(self.objectives) >= self._most

    @property
    def diverged(self) -> bool:
        """Whether the last objective is far above the first one, or no number."""
        return bool(self.objectives) and not self.objectives[-1] <= _DIVERGED * self._at_first

    def reached(self, step: int, model: Any) -> bool:
        """Whether the training is over."""
        if self._alone:
            if malt.rank() == 0:
                self.objectives.append(self._goal.objective(model))
            return self._is_over
        if step > len(self.objectives):
            self.objectives.append(self._goal.objective(model))
        return step == len(self.objectives) and self._is_over

    def steps(self) -> float:
        """Steps to the objective, infinity or NaN, as in `Count`."""
        if self.diverged:
            return math.nan
        return len(self.objectives) if self.objectives[-1] <= self._goal.target else math.inf


def count(task: Task, way: Way, setting: Setting, most: int, seed: int = 0) -> Count:
    """What the training takes, on `RANKS` simulated ranks that have an equal part of the rows each."""
    watch = Watch(task, most)
    network = malt.Network(*jobs.GIGABIT)
    network.buffers = False
    ends = [rank * len(task.data.labels) // RANKS for rank in range(RANKS + 1)]

    def on_rank(rank: int) -> traffic.Edges:
        mine = linear.part(task.data, ends[rank], ends[rank + 1])
        return way.train(way, Training(task, mine, setting, watch.reached, np.random.default_rng([seed, rank])))

    try:
        sent = malt.simulate(on_rank, RANKS, seed, network)
    except FloatingPointError:
        return Count(way, setting, math.nan)
    moved = traffic.moved(sent)
    return Count(way, setting, watch.steps(), sum(moved) // 2, max(moved), network.totals.time_s)


def search(task: Task, way: Way, most: int) -> Count:
    """The count of the fewest steps in the grid of `way`; of those, of the fewest seconds.

    A setting is given up once it has taken more steps than the best so far.
    """
    found: Count | None = None
    for setting in way.settings:
        limit = int(found.steps) if found and math.isfinite(found.steps) else most
        found = min((one for one in (found, count(task, way, setting, limit)) if one), key=_rank)
    assert found
    return found


def _rank(one: Count) -> tuple[bool, float, float]:
    """The best first; what diverged last."""
    return math.isnan(one.steps), one.steps, one.seconds


def shown(steps: float) -> object:
    """A number of steps, or why there is none."""
    return "diverges" if math.isnan(steps) else "not reached" if math.isinf(steps) else int(steps)
