"""--optimizer dual: every rank ascends the dual on its part of the rows, and all add up what that changes.

Rows are dealt anew in each epoch, one by one: with a part of its own for good a rank undoes what others do, and the gap
closes a fifth as fast (Ioannou et al., SySCD, NeurIPS 2019); with blocks of 64 half as fast. Every rank has all alphas,
so none is lost with a failed rank. After an epoch all ranks know the duality gap: an upper bound of what is left to
gain. It ends the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array, BadInput, CommonShares, Measures, Need, Report, Start
from apps.svm import problem as common
from malt.data import rows_of
from malt.models import Sums, linear
from malt.models.linear import Order

_COPIES, _PER_ROW = 10, 8
"""Arrays of float64 on a rank, of features and of rows: an ascent, its changes, what is summed, what is saved."""


class Changes(Sums):
    """Sums of the changes of all ranks, each counted as a message of the weights to and from each other rank."""

    def __init__(self, weights: Array) -> None:
        super().__init__("reduce-scatter")
        self.array, self._begun = weights, malt.init().statistics()
        self._count = self._merged = 0

    def take(self, array: Array) -> None:
        super().take(array)
        self._count += 1
        self._merged += len(malt.alive()) - 1

    def statistics(self) -> malt.Statistics:
        total, begun = malt.init().statistics(), self._begun
        sent, across = total.bytes_sent - begun.bytes_sent, total.bytes_across - begun.bytes_across
        return replace(total, bytes_sent=sent, bytes_across=across, sent=self._count, gathered=self._merged)


class Trainer(common.Trainer, harness.Together):
    """The trainer of the dual. In an epoch each rank trains its own part of the rows, in an order shared by all."""

    def __init__(self, problem: Problem, start: Start) -> None:
        common.Trainer.__init__(self, problem)
        harness.Together.__init__(self)
        self._shares, self._generator = start.shares, np.random.default_rng(self._options.seed)
        values = self._everything.values[slice(*self._everything.starts[list(self._my_range())])]
        square = np.array(np.einsum("i,i", values, values, dtype=np.float64) / problem.rows)
        malt.allreduce(square, op="sum")
        self._ascent = linear.Ascent(
            problem.linear, self._everything, problem.n_features, float(square), start.state or None
        )
        self._model = self._ascent.model()
        """The weights as they are measured and saved."""
        self._sums = Changes(self._ascent.weights)
        self.vectors = [self._sums]
        self._known: Measures | None = None
        """The objective and the gap of the model, once they have been measured."""

    def _my_range(self) -> tuple[int, int]:
        """This rank's part of the rows in their order in the file: the first, and the one after the last."""
        alive, rows = self._shares.alive, self._problem.rows
        place = alive.index(malt.rank())
        return rows * place // len(alive), rows * (place + 1) // len(alive)

    def order(self) -> Order:
        """All rows, in the order in which all ranks deal them."""
        return self._generator.permutation(self._problem.rows).astype(np.int32)

    def train(self, epoch: int, order: Order) -> int:
        counts = [self._shares.rows(rank) for rank in self._shares.alive]
        mine = order[rows_of(len(order), malt.rank(), self._shares.failed)]
        exchanges = -(-max(counts) // (self._options.exchange_every or max(counts)))  # as many on all ranks
        for part in np.array_split(mine, exchanges):
            changes = self._ascent.ascend(part, sum(count > 0 for count in counts))
            self._sums.take(changes)
            self._ascent.add(changes)
        self._ascent.balance()
        self._model[:] = self._ascent.model()
        self._measure()
        return len(mine)

    def _measure(self) -> None:
        """Find the objective of the model and the duality gap. Collective. BadInput: the objective is not finite."""
        rows = self._problem.rows
        while (sums := self._totals())[0] < rows:  # a rank has failed, and its rows are not in the sums
            self._shares.changed(self._shares.present())
        objective = float(sums[1]) / rows + float(sums[3])
        gap = objective - (float(sums[2]) / rows - float(sums[4]))
        if not math.isfinite(gap):
            raise BadInput("the weights are out of scale for float32: scale the features, or give a larger --l2")
        self._known = {"objective": objective, "duality_gap": gap / objective if gap > 0 else 0.0}

    def _totals(self) -> Array:
        """Return the rows in the sums, the sums of losses and dual losses, and the penalties of both. Collective."""
        start, stop = self._my_range()
        losses, _ = linear.totals(self._problem.linear, self._everything, self._model, start, stop)
        sums = np.array([stop - start, losses, self._ascent.total(start, stop), 0, 0])
        if malt.lowest():  # hosts may round these differently: one computes them
            sums[3:] = linear.penalty(self._problem.linear, self._model), self._ascent.penalty()
        malt.allreduce(sums, op="sum")
        return sums

    def has_converged(self) -> bool:
        gap = (self._known or {}).get("duality_gap")
        return gap is not None and gap <= self._options.gap and self._options.gap > 0

    def model(self) -> Mapping[str, Array]:
        return {"model": self._model}

    def measures(self) -> Measures:
        if self._known is None:
            self._measure()
        return {**(self._known or {}), "test_accuracy": self.test_accuracy(self.model())}

    def state(self) -> Mapping[str, Any]:
        return self._ascent.state()

    def finish(self) -> None:
        """The model is the same on all ranks already."""

    def warning(self, report: Report) -> str:
        gap, enough = report.final["duality_gap"], self._options.gap
        text = f"the duality gap is {gap:.1e}, not {enough:g}: give more --epochs, or a larger --l2"
        return text if gap > enough > 0 else ""


class Problem(common.Problem):
    """The problem, and how it is trained."""

    trains, deals = Trainer, CommonShares
    variant = " --optimizer dual"

    @property
    def tolerance(self) -> float:
        return float(self.options.gap)

    def memory(self) -> Need:
        return self.need(np.dtype(np.float64).itemsize * (_COPIES * (self.n_features + 1) + _PER_ROW * self.rows))

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        every = f"{options.exchange_every:,} examples" if options.exchange_every else "epoch"
        return f"{self.described()}, dual coordinate ascent, an exchange every {every}, to a gap of {options.gap:g}"
