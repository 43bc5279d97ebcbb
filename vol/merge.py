"""Gather functions: how updates merge into a rank's own array.

A built-in one merges in place, in blocks that stay in the cache. Sums run in the order of ranks, own included, and
divide last, so that ranks which merge the same messages end with the same bits; float16 is summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vol.update import Array, Update

_BLOCK = 16_384
"""Elements merged at once: a block of each message, the sum and the own array stay in a core's cache."""

UserFunction = Callable[[Array, "list[Update]"], "Array | None"]


@dataclass(frozen=True)
class Own:
    """The receiver's part in a merge."""

    rank: int
    weight: float
    """The weight of its last scatter."""
    mass: float
    """What it kept of its mass at its last scatter."""
    values: Array
    """Its array, C-contiguous: the result is written into it."""


@dataclass(frozen=True)
class GatherFunction:
    """A built-in gather function; `merge(own, updates)` changes own.values, given at least one update."""

    name: str
    newest: bool
    """Whether only the newest waiting message of each sender counts."""
    merge: Callable[[Own, Sequence[Update]], None]
    floating: bool = False
    """Whether it needs a floating-point vector."""

    def __repr__(self) -> str:
        return f"malt.{self.name}"


def _average(own: Own, updates: Sequence[Update]) -> None:
    """own <- (own + sum of received) / (1 + number received)."""
    _combine(own, updates, divisor=1 + len(updates))


def _sum(own: Own, updates: Sequence[Update]) -> None:
    """own <- own + sum of received."""
    _combine(own, updates)


def _weighted(own: Own, updates: Sequence[Update]) -> None:
    """own <- (w own + sum of w_s received_s) / (w + sum of w_s); where all weights are zero, own stays."""
    divisor = _weight_sum(own, updates)
    if divisor > 0:
        _combine(own, updates, weighted=True, divisor=divisor)


def _push_sum(own: Own, updates: Sequence[Update]) -> None:
    """own <- (m own + sum of m_s received_s) / (m + sum of m_s), m_s the shares of mass (Kempe, Dobra, Gehrke 2003).

    Push-sum sends an even share of (x, m); own is x / m. The mass m is for the vector to keep.
    """
    _weighted(replace(own, weight=own.mass), [replace(update, weight=update.share) for update in updates])


def _replace(own: Own, updates: Sequence[Update]) -> None:
    """own <- the received update of the highest step, then of the highest rank."""
    np.copyto(own.values, max(updates, key=lambda update: (update.step, update.sender)).values)


def _by_rank(update: Update) -> tuple[int, int]:
    return update.sender, update.step


def _weight_sum(own: Own, updates: Sequence[Update]) -> float:
    """In the order of ranks, so that it has the same bits on all."""
    return sum(weight for _, weight, _ in _terms(own, updates))


def _terms(own: Own, updates: Sequence[Update]) -> list[tuple[tuple[int, int], float, Array]]:
    """(order, weight, flat values) of all that is summed, in the order of ranks."""
    terms = [(_by_rank(update), update.weight, update.values.reshape(-1)) for update in updates]
    return sorted([*terms, ((own.rank, 0), own.weight, own.values.reshape(-1))], key=lambda term: term[0])


def _combine(own: Own, updates: Sequence[Update], *, weighted: bool = False, divisor: float | None = None) -> None:
    terms = _terms(own, updates)
    target = own.values.reshape(-1)
    wide = np.dtype(np.float32) if target.dtype == np.float16 else target.dtype
    total = np.empty(min(_BLOCK, target.size), wide)
    scaled = np.empty_like(total) if weighted else total
    for start in range(0, target.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        into = total[: target[block].size]
        if weighted:
            _weigh(into, scaled[: into.size], [(weight, values[block]) for _, weight, values in terms])
        else:
            np.add(terms[0][2][block], terms[1][2][block], out=into, dtype=wide)
            for _, _, values in terms[2:]:
                np.add(into, values[block], out=into)
        if divisor is None:
            np.copyto(target[block], into, casting="same_kind")
        else:
            np.divide(into, wide.type(divisor), out=target[block], casting="same_kind")


def _weigh(into: Array, scaled: Array, terms: Sequence[tuple[float, Array]]) -> None:
    """into <- sum of weight x values."""
    into[:] = 0
    for weight, values in terms:
        np.multiply(values, into.dtype.type(weight), out=scaled)
        np.add(into, scaled, out=into)


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
