"""Sample weights: the rows that have one, what ranks compare of them, and rows drawn in proportion to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from malt.files.checksum import checksum

Floats = NDArray[np.float64]


def kept(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
    """X, y and their weights without the rows of weight 0; without weights X and y themselves. Local.

    ValueError: the weights are no numbers of at least 0, one for each row, or all are 0.
    """
    if sample_weight is None:
        return X, y, None
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    rows = np.flatnonzero(weights)
    if not len(rows):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return X[rows], y[rows], weights[rows]


def compared(kind: str, weights: Floats | None) -> dict[str, Any]:
    """Return what ranks compare, and what they send, of the weights of an estimator whose `rows` is `kind`. Local."""
    if weights is None:
        return {"sample_weight": "not given"}
    same = {"the checksum of sample_weight": checksum(weights)} if kind == "shard" else {}
    return {"sample_weight": "given", **same, "_weight": float(weights.sum()), "_heaviest": float(weights.max())}


class Weights:
    """The weights of the rows that this rank was given. Local. `reports`: by rank, what they tell. `total`: of rows."""

    def __init__(self, given: Floats, deals: bool, reports: Mapping[int, Any], own: int, total: int) -> None:
        self.given = given
        self.sum: float = reports[own]["_weight"] if deals else sum(one["_weight"] for one in reports.values())
        """Of the rows of all ranks."""
        self.heaviest: float = max(one["_heaviest"] for one in reports.values())
        self.relative = given * (total / self.sum)
        """The mean over the rows of all ranks is 1."""

    def drawn(
        self, order: NDArray[np.integer[Any]], rows: NDArray[np.intp], generator: np.random.Generator
    ) -> NDArray[Any]:  # fmt: skip
        """Places of `rows`, drawn from those in `order`, each about as often as its relative weight says.

        A row of relative weight 2.3 is there two or three times: so steps stay of one size, and the mean over many
        epochs is exact. Rows are shuffled: those that are there more than once stand apart.
        """
        ends = np.cumsum(self.relative[rows[order]])
        points = np.arange(generator.random(), ends[-1] if len(ends) else 0.0)
        return generator.permutation(order[np.searchsorted(ends, points, side="right")])
