"""The history of L-BFGS and the direction that follows from it.

Liu and Nocedal, On the limited memory BFGS method, Mathematical Programming 45, 1989. The direction is -H g, with
s = w' - w, y = g' - g of the last m steps and H = (s.y / y.y) I to begin with. It is a sum of g and of all s and y. Its
weights follow from scalar products alone (Byrd, Nocedal and Schnabel, Representations of quasi-Newton matrices and
their use in limited memory methods, Mathematical Programming 63, 1994), which ranks find in one exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from malt.optim.vectors import combined, dots


class Products(NamedTuple):
    """Scalar products of a vector with the s and the y of pairs, the oldest first."""

    s: list[float]
    y: list[float]

    def extended(self, s: float, y: float) -> Products:
        """Those with a newer pair, too."""
        return Products([*self.s, s], [*self.y, y])

    def of_last(self, count: int) -> Products:
        """Those with the last `count` pairs."""
        return Products(self.s[-count:], self.y[-count:])


class Pair(NamedTuple):
    """A step and the change of the gradient that it has made: vectors of the kind of w."""

    s: Any
    y: Any
    products: Products
    """Those of y with the pairs up to this one: the last of them are s.y, above 0, and y.y."""


def measured(
    vectors: Sequence[Any], pairs: Sequence[Pair], others: Sequence[tuple[Any, Any]]
) -> tuple[list[Products], list[float]]:
    """The products of `vectors` with `pairs`, and those of `others`. Collective if they are sharded: one exchange."""
    known = [*(pair.s for pair in pairs), *(pair.y for pair in pairs)]
    found = iter(dots([*others, *((vector, one) for vector in vectors for one in known)]))
    numbers = [next(found) for _ in others]
    return [Products([next(found) for _ in pairs], [next(found) for _ in pairs]) for _ in vectors], numbers


def direction(gradient: Any, square: float, products: Products, pairs: Sequence[Pair]) -> tuple[Any, float]:
    """-H g, and its scalar product with g. `square`: g.g; `products`: those of g with the pairs. Local.

    These are the two loops (Nocedal and Wright, Numerical Optimization, 2nd edition, algorithm 7.4) on the products of
    their vectors: q = g - sum of a_i y_i, and -H g = -(h q + sum of c_i s_i).
    """
    count, h, a, c = len(pairs), 1.0, [0.0] * len(pairs), [0.0] * len(pairs)

    def s_y(i: int, j: int) -> float:
        """s_i . y_j, where j is not before i."""
        return pairs[j].products.s[i - j - 1]

    def y_y(i: int, j: int) -> float:
        """y_i . y_j."""
        return pairs[max(i, j)].products.y[-abs(i - j) - 1]

    for i in reversed(range(count)):
        a[i] = (products.s[i] - sum(a[j] * s_y(i, j) for j in range(i + 1, count))) / s_y(i, i)
    if pairs:
        h = s_y(count - 1, count - 1) / y_y(count - 1, count - 1)
    for i in range(count):
        of_q = products.y[i] - sum(a[j] * y_y(i, j) for j in range(count))
        c[i] = a[i] - (h * of_q + sum(c[j] * s_y(j, i) for j in range(i))) / s_y(i, i)
    slope = h * (square - sum(a[i] * products.y[i] for i in range(count)))
    slope += sum(c[i] * products.s[i] for i in range(count))
    weights = [-h, *(-number for number in c), *(h * number for number in a)]
    vectors = (gradient, *(pair.s for pair in pairs), *(pair.y for pair in pairs))
    return combined(_weighted(weights), *vectors), -slope


def _weighted(weights: Sequence[float]) -> Callable[..., Any]:
    """The function that returns the sum of arrays, times these numbers."""

    def function(first: Any, *others: Any) -> Any:
        """The sum, as a new array."""
        total = weights[0] * first
        term = np.empty_like(total)
        for weight, other in zip(weights[1:], others, strict=True):
            total += np.multiply(weight, other, out=term)
        return total

    return function
