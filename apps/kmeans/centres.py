"""Centres, and how they move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from apps.kmeans.kernels import Floats
from apps.kmeans.points import Dealt, Found


class Centres:
    """The centres, the same on all ranks. `state`: what `state` returned, or {"centres": the first ones}."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.values: Floats = state["centres"]
        """(clusters, features)."""
        self._seen: Floats = state.get("seen", np.zeros(len(self.values)))
        """The rows of mini-batches that have moved each centre."""

    def state(self) -> Mapping[str, Any]:
        """Return the arrays that a training resumes from: views."""
        return {"centres": self.values, "seen": self._seen}

    def step(self, found: Found) -> None:
        """Let each centre be the mean of all rows of mini-batches that were nearest to it (Sculley, 2010). Local."""
        self._seen += found.counts
        shares = np.maximum(self._seen, 1)[:, np.newaxis]
        self.values += (found.sums - found.counts[:, np.newaxis] * self.values) / shares

    def move(self, dealt: Dealt, found: Found) -> float:
        """Let each centre be the mean of its rows. Return the sum of squared shifts. Collective.

        A cluster that stays empty has the centre of the largest, as in scikit-learn.
        """
        dealt.relocate(found)
        means = found.sums / np.maximum(found.counts, 1)[:, np.newaxis]
        means[found.counts <= 0] = means[found.counts.argmax()]
        shift = float(((means - self.values) ** 2).sum())
        self.values[:] = means
        return shift

    def fill(self, dealt: Dealt, found: Found) -> bool:
        """Move the centres without rows to the rows farthest from theirs. Return whether any is moved. Collective."""
        empty = dealt.relocate(found)
        filled = empty[found.counts[empty] > 0]
        self.values[filled], self._seen[filled] = found.sums[filled], 1
        return bool(filled.size)
