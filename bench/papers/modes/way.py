"""The ways to exchange that are compared: along a graph in a mode, or one average an epoch; and what a task brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

import malt
from malt.models.linear import Order

RANKS = 8
"""As in MALT-2's table."""
ALGORITHM = "reduce-scatter"
"""Of malt.allreduce, for one average an epoch."""


class Way(NamedTuple):
    """Along which graph ranks exchange, and who waits."""

    graph: str
    sync: str
    """A mode; of `AVERAGES` none."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.sync}, {self.graph}" if self.sync else self.graph

    @property
    def is_collective(self) -> bool:
        """Whether all ranks have the same model after each exchange."""
        return not self.sync


GRAPHS = ("all", "halton", "star")
SYNCS = ("asp", "ssp:4", "ssp:1", "notify-ack", "bsp")
AVERAGES = Way("one average per epoch", "")
"""Map/reduce: all ranks average their models at the end of each epoch."""
WAYS = (*(Way(graph, sync) for graph in GRAPHS for sync in SYNCS), AVERAGES)


class Learner(Protocol):
    """One rank's part of a training."""

    vectors: Sequence[Any]
    """What carries its model to other ranks: vectors, or `Averages`."""

    @property
    def model(self) -> Any:
        """The model that is measured: views."""

    def learn(self, part: Order) -> None:
        """Train on these of the rank's rows. Local, but for models that travel while others learn: One-sided."""

    def exchange(self) -> None:
        """Exchange what is still to be exchanged. One-sided; for `AVERAGES` Collective."""

    def finish(self) -> None:
        """Leave: nobody waits for this rank any more. Collective."""


class Task(Protocol):
    """A program, its rows, and the objective to reach."""

    name: str
    what: str
    """The rows, and how it is trained, for the page."""
    measure: str
    """The objective and its target, for the head of a column."""
    target: float
    at_first: float
    every: int
    """Rows that a rank trains on between two exchanges."""
    rows: int
    nbytes: int
    """Of the model."""

    def objective(self, model: Any) -> float:
        """That of a model. Local."""

    def learner(self, way: Way) -> Learner:
        """This rank's part, one of `RANKS`. Collective."""

    def order(self, generator: np.random.Generator) -> Order:
        """The order of an epoch over this rank's rows. Local."""

    def work(self) -> int:
        """Train on some rows alone, and return how many these were: what is timed. Local."""


class Averages:
    """Means of the models of all ranks, and what they take. Local, except `take`."""

    def __init__(self) -> None:
        self._waited_s = 0.0

    def take(self, arrays: Sequence[Any]) -> None:
        """Replace `arrays`, in place, by their means over all ranks. Collective."""
        start = malt.clock()
        malt.barrier()  # so much is waited for others; what follows is exchange
        self._waited_s += malt.clock() - start
        for array in arrays:
            malt.allreduce(array, algorithm=ALGORITHM)

    def statistics(self) -> malt.Statistics:
        """The bytes and the seconds waited so far."""
        return replace(malt.init().statistics(), waited_s=self._waited_s)
