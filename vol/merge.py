"""Gather functions: how updates merge into a rank's own array.

A built-in one merges in place, in blocks that stay in the cache. Sums run in the order of ranks, own included, and
divide last, so that ranks which merge the same messages end with the same bits; float16 is summed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from vol.update import Array, Update

_BLOCK = 65_536
"""Elements merged at once: a block of a message, the sum and the own array stay in a core's cache, and numpy's calls
take less time than their work."""

UserFunction = Callable[[Array, "list[Update]"], "Array | None"]


class Own(NamedTuple):
    """The receiver's part in a merge."""

    rank: int
    weight: float
    """The weight of its last scatter."""
    mass: float
    """What it kept of its mass at its last scatter."""
    values: Array
    """Its array, C-contiguous: the result is written into it."""


class Term(NamedTuple):
    """One message's part in a merge: what the built-in functions need of an Update."""

    sender: int
    step: int
    weight: float
    share: float
    values: Array


Updates = Sequence["Term | Update"]


class Blend(NamedTuple):
    """A sum of arrays with weights, over a divisor."""

    terms: Sequence[tuple[float, Array]]
    """(weight, flat values), in the order in which they are summed; at least two."""
    weighted: bool = False
    """Whether the weights are other than 1."""
    divisor: float | None = None

    def store(self, target: Array) -> None:
        """The result in `target`, flat, one of the terms: block by block, each done with at once."""
        if not self.weighted and target.dtype.char != _HALF and self._begins_with(target):
            self._store_in_place(target)
            return
        total = np.empty(min(_BLOCK, target.size), wide_dtype(target.dtype))
        for start in range(0, target.size, _BLOCK):
            part = target[start : start + _BLOCK]
            self._add(slice(start, start + _BLOCK), total[: part.size])
            self._divide(total[: part.size], part)

    def total(self, into: Array) -> None:
        """The sum alone in `into`, flat, of wide_dtype and none of the terms."""
        for start in range(0, into.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            self._add(block, into[block])

    def finish(self, total: Array, target: Array) -> None:
        """From what `total` gave, the result in `target`."""
        self._divide(total, target)

    def _begins_with(self, target: Array) -> bool:
        """Whether `target` is one of the two terms that are added first, and may hold their sum."""
        return self.terms[0][1] is target or self.terms[1][1] is target

    def _store_in_place(self, target: Array) -> None:
        if target.size <= _BLOCK:
            self._add(_ALL, target)
            self._divide(target, target)
            return
        for start in range(0, target.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = target[block]
            self._add(block, part)
            self._divide(part, part)

    def _add(self, block: slice, into: Array) -> None:
        if self.weighted:
            scaled = np.empty_like(into)
            into[:] = 0
            for weight, values in self.terms:
                np.multiply(values[block], into.dtype.type(weight), out=scaled)
                np.add(into, scaled, out=into)
            return
        (_, first), (_, second), *others = self.terms
        np.add(first[block], second[block], out=into, dtype=into.dtype)
        for _, values in others:
            np.add(into, values[block], out=into)

    def _divide(self, total: Array, target: Array) -> None:
        if self.divisor is None:
            if target is not total:
                np.copyto(target, total, casting="same_kind")
        elif _is_power_of_two(self.divisor):  # the same bits, in a third of the time
            np.multiply(total, total.dtype.type(1 / self.divisor), out=target, casting="same_kind")
        else:
            np.divide(total, total.dtype.type(self.divisor), out=target, casting="same_kind")


_ALL = slice(None)
_HALF = np.dtype(np.float16).char


def _is_power_of_two(number: float) -> bool:
    return math.frexp(number)[0] == 0.5


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In which arrays of `dtype` are summed."""
    return np.dtype(np.float32) if dtype.char == _HALF else dtype


@dataclass(frozen=True)
class GatherFunction:
    """A built-in gather function; `merge(own, updates)` changes own.values, given at least one update."""

    name: str
    newest: bool
    """Whether only the newest waiting message of each sender counts."""
    merge: Callable[[Own, Updates], None]
    floating: bool = False
    """Whether it needs a floating-point vector."""

    def __repr__(self) -> str:
        return f"malt.{self.name}"


def average(own: Own, updates: Updates) -> Blend:
    """(own + sum of received) / (1 + number received)."""
    return Blend(_terms(own, updates), divisor=1 + len(updates))


def _average(own: Own, updates: Updates) -> None:
    """own <- (own + sum of received) / (1 + number received)."""
    average(own, updates).store(_flat(own.values))


def _sum(own: Own, updates: Updates) -> None:
    """own <- own + sum of received."""
    Blend(_terms(own, updates)).store(_flat(own.values))


def _weighted(own: Own, updates: Updates) -> None:
    """own <- (w own + sum of w_s received_s) / (w + sum of w_s); where all weights are zero, own stays."""
    terms = _terms(own, updates)
    divisor = sum(weight for weight, _ in terms)  # in the order of ranks, so that it has the same bits on all
    if divisor > 0:
        Blend(terms, weighted=True, divisor=divisor).store(_flat(own.values))


def _push_sum(own: Own, updates: Updates) -> None:
    """own <- (m own + sum of m_s received_s) / (m + sum of m_s), m_s the shares of mass (Kempe, Dobra, Gehrke 2003).

    Push-sum sends an even share of (x, m); own is x / m. The mass m is for the vector to keep.
    """
    shares = [Term(update.sender, update.step, update.share, 0.0, update.values) for update in updates]
    _weighted(own._replace(weight=own.mass), shares)


def _replace(own: Own, updates: Updates) -> None:
    """own <- the received update of the highest step, then of the highest rank."""
    np.copyto(own.values, max(updates, key=lambda update: (update.step, update.sender)).values)


def _terms(own: Own, updates: Updates) -> list[tuple[float, Array]]:
    """(weight, flat values) of all that is summed, in the order of ranks, then steps."""
    terms = [(update.sender, update.step, update.weight, _flat(update.values)) for update in updates]
    terms.append((own.rank, 0, own.weight, _flat(own.values)))
    terms.sort(key=_by_rank)
    return [(weight, values) for _, _, weight, values in terms]


_by_rank = itemgetter(0, 1)


def _flat(values: Array) -> Array:
    """A view; the array itself where it is flat, so that it can be told from others."""
    return values if values.ndim == 1 else values.reshape(-1)


AVG = GatherFunction("AVG", newest=True, merge=_average, floating=True)
SUM = GatherFunction("SUM", newest=False, merge=_sum)
REPLACE = GatherFunction("REPLACE", newest=True, merge=_replace)
WEIGHTED = GatherFunction("WEIGHTED", newest=True, merge=_weighted, floating=True)
PUSH_SUM = GatherFunction("PUSH_SUM", newest=False, merge=_push_sum, floating=True)
"""Averages along any graph, also where ranks have unlike numbers of peers: mass travels with each message, and the
mean weighted by it stays. It is lost with a message that is never merged; then what the ranks come to is biased:

sync="notify-ack"       no bias: nothing is ever overwritten
sync="bsp"              no bias where every scatter is followed by a gather: a step that is not gathered is lost
sync="asp", "ssp:S"     no bias where depth is large enough that nothing is overwritten; a sender cannot know, but
                        `statistics().overwritten` of the receivers tells: 0 on all ranks, and nothing was lost

Mass begins at 1 on each rank; a gather with any other function sets it back to that.
"""

BUILT_IN = (AVG, SUM, REPLACE, WEIGHTED, PUSH_SUM)


def apply_user_function(function: UserFunction, own: Array, updates: list[Update]) -> None:
    """Merge by the user's function, which sees a copy of `own`: where it raises, or returns what does not fit,
    `own` stays as it was. ValueError: the result's shape; TypeError: its dtype."""
    trial: Any = own.copy()
    result = function(trial, updates)
    name = getattr(function, "__name__", repr(function))
    try:
        merged = np.asarray(trial if result is None else result)
    except (ValueError, TypeError) as error:  # rows of unlike lengths
        raise ValueError(f"gather function {name} returned what is not an array: {error}") from error
    if merged.shape != own.shape:
        raise ValueError(f"gather function {name} returned shape {merged.shape}, the vector's is {own.shape}")
    if not np.can_cast(merged.dtype, own.dtype, "same_kind"):
        raise TypeError(f"gather function {name} returned dtype {merged.dtype}, the vector's is {own.dtype}")
    np.copyto(own, merged, casting="same_kind")
