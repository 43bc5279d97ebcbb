"""Replaces the kernels of trees, and their inner loops, by NumPy where they are interpreted.

Sums of words are integers, and the same. Losses agree with those of the kernels up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def add_rows(bins: Any, order: Any, first: int, last: int, words: Any, one: int, starts: Any, sums: Any) -> None:
    """Add rows to a histogram, of whose columns `bins` has four in a word."""
    rows = order[first:last]
    values, added = bins.view(np.uint8)[rows], words[rows].astype(np.int64)
    added[:, 1] += one
    for column in range(values.shape[1]):
        places = 2 * (starts[column] + values[:, column])
        for word in range(2):
            np.add.at(sums, places + word, added[:, word])


def partition(bins: Any, order: Any, first: int, last: int, goes_left: Any, spare: Any) -> int:
    """Move rows that go left before the others, each in their order. Return where the others begin."""
    rows = order[first:last].copy()
    left = goes_left[bins[rows]] > 0
    middle = first + int(np.count_nonzero(left))
    order[first:middle], order[middle:last] = rows[left], rows[~left]
    return middle


def largest_gradient(scores: Any, y: Any) -> float:
    """The largest |score - y|."""
    return float(np.abs(scores - y).max(initial=0.0))


def gradients(chances: Any, scores: Any, y: Any, scale: Any, words: Any) -> None:
    """The words of each row, of the probability of its class; where there is none, of score - y."""
    if chances is None:
        words[:, 0], words[:, 1] = np.rint((scores - y) * scale.gradient), scale.hessian
    else:
        words[:, 0] = np.rint((chances - 0.5 * (y + 1.0)) * scale.gradient)
        words[:, 1] = np.rint(chances * (1.0 - chances) * scale.hessian)


def softmax(scores: Any) -> Any:
    """exp(scores[k, i]) / sum over k of exp(scores[k, i])"""
    powers = np.exp(scores - scores.max(axis=0))
    return powers / powers.sum(axis=0)
