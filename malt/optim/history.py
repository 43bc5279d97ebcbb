"""The history of L-BFGS and the direction that follows from it. Pure.

Liu and Nocedal, On the limited memory BFGS method, Mathematical Programming 45, 1989. The direction is -H g, by the
two-loop recursion (Nocedal and Wright, Numerical Optimization, 2nd edition, algorithm 7.4), with s = w' - w, y = g' - g
of the last m steps and H = (s.y / y.y) I to begin with.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from malt.optim.vectors import dot


class Pair(NamedTuple):
    """A step and the change of the gradient that it has made: vectors of the kind of w."""

    s: Any
    y: Any
    curvature: float
    """s.y, above 0."""


def direction(gradient: Any, pairs: deque[Pair], newest_slope: float | None = None) -> Any:
    """-H g. `newest_slope`: s.g of the newest pair, where it is known. Collective if `gradient` is sharded."""
    q = gradient.copy()
    parts = []
    for place, pair in enumerate(reversed(pairs)):
        slope = dot(pair.s, q) if place or newest_slope is None else newest_slope
        part = slope / pair.curvature
        q -= part * pair.y
        parts.append(part)
    if pairs:
        q *= pairs[-1].curvature / dot(pairs[-1].y, pairs[-1].y)
    for pair, part in zip(pairs, reversed(parts), strict=True):
        q += (part - dot(pair.y, q) / pair.curvature) * pair.s
    return -q
