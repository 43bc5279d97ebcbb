"""The area under the ROC curve. *Local.*"""

from __future__ import annotations

from typing import Any

import numpy as np


def area(scores: Any, y: Any) -> float:
    """The share of pairs of a positive and a negative row in which the positive one has the larger score.

    Equal ones count half. NaN without rows of both kinds.
    """
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    positive = y > 0
    here, there = int(positive.sum()), int((~positive).sum())
    if not here * there:
        return float("nan")
    return float((ranks[positive].sum() - here * (here + 1) / 2) / (here * there))
