"""Measures the weights on the rows of all ranks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from apps.harness import BadInput, Measures
from apps.logistic.dealing import Dealt
from apps.logistic.rows import Rows
from malt.models.linear import Objective


class Measuring:
    """Measures of weights at the ends of epochs."""

    def __init__(self, rows: Rows, objective: Objective, dealt: Dealt) -> None:
        self._tests = 0 if rows.test is None else len(rows.test.y)
        self._objective, self._dealt = objective, dealt
        self.kept: list[Measures] = []
        """Those at the end of each epoch of this run."""

    def keep(self, point: Any, value: float) -> None:
        """Keep the measures of `point`. Collective. Arguments and errors: as `measures`."""
        self.kept.append(self.measures(point, value))

    def measures(self, point: Any, value: float = math.nan) -> Measures:
        """The objective, which is `value` where that is known, and the accuracy on the test rows. Collective.

        BadInput, on all ranks: the objective is not finite.
        """
        visited, find = self._dealt.visited, partial(self._objective.found, point, measures=True)
        if math.isnan(value):
            value = self._dealt.whole(partial(find, rows=self._dealt.count)).value
        if not math.isfinite(value):
            raise BadInput("the objective is not finite: scale the features, or take a smaller --step")
        right = self._dealt.whole(partial(find, rows=self._tests), test=True).right if self._tests else 0
        self._dealt.visited = visited
        return {"objective": value, "test_accuracy": right / self._tests if self._tests else None}
