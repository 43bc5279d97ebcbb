"""The ways to exchange that are compared: along a graph in a mode, or one average an epoch; and what a task brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import malt

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


Task = Any
"""A program, its rows, and the objective to reach: `Svm` or `Mlp`.

All say `what` they are, the `measure` and its `target`, `at_first`, `rows`, the rows of a rank `every` exchange, and
the `nbytes` of the model. Local: `objective` of a model; `order` of an epoch over this rank's rows; `work`, which
trains on some rows alone, and returns how many, to be timed. Collective: `learner`, this rank's part. It has the
`vectors` that carry its `model`, and can `learn` from rows, `exchange` and `finish`.
"""
Learner = Any


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
