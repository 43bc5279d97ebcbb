"""Gather functions: they merge updates into the array of a rank. Pure.

The built-in functions merge in place, in blocks that stay in the cache. They sum in rank order, with the own array in
its place, and divide last. So ranks that merge the same messages end with the same bits. float16 is summed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dstorm.waits import interruption
from vol.merging.undo_buffer import UndoBuffer, is_kept
from vol.update import Array, Update

_BLOCK = 65_536
"""Elements merged at once. A block of a message, of the sum and of the own array stay in the cache of a core, and a
call of NumPy takes less time than its work."""

UserFunction = Callable[[Array, "list[Update]"], "Array | None"]


class Own(NamedTuple):
    """The term of the receiver in a merge."""

    rank: int
    weight: float
    """The weight of the last scatter."""
    mass: float
    """The mass that is left after the last scatter."""
    values: Array
    """The array, C-contiguous. The result is written into it."""
    counted: Mapping[int, float] | None = None
    """For AVG and MEAN the weight of each rank that counts, this one included, by rank. None: it and the senders,
    equally."""


class Term(NamedTuple):
    """The term of one message in a merge: what the built-in functions need of an Update."""

    sender: int
    step: int
    weight: float
    share: float
    values: Array


Updates = Sequence["Term | Update"]


class Blend(NamedTuple):
    """A weighted sum of arrays, divided by a number. Local."""

    terms: Sequence[tuple[float, Array]]
    """(weight, flat values) of each term, at least two, in the order of the sum."""
    weighted: bool = False
    """Whether a weight is not 1."""
    divisor: float | None = None
    """The divisor; None for a sum."""

    def store(self, target: Array, undo: UndoBuffer | None = None) -> None:
        """Write the result into `target`, flat, which may be one of the terms. It works block by block.

        `undo`: keeps the values of each block before it changes, for the caller to restore. Without it `target` is
        unchanged where an operation raises.
        """
        kept = target.copy() if undo is None and is_kept(target.size) else None
        try:  # a context manager takes 8 us
            self.compute(target, undo)
        except BaseException:
            if kept is not None:
                target[:] = kept
            raise

    def compute(self, target: Array, undo: UndoBuffer | None = None) -> None:
        """Write the result like `store`. Where an operation raises, `target` may hold anything."""
        # Into the first of two lone elements NumPy adds the other way round, which shows where both are NaN.
        is_plain = not self.weighted and target.dtype.char != _HALF and target.size > 1
        is_in_place = is_plain and (len(self.terms) == 2 or self._may_begin_in(target))
        total = None if is_in_place else np.empty(min(_BLOCK, target.size), wide_dtype(target.dtype))
        for start in range(0, target.size, _BLOCK):
            block = slice(start, start + _BLOCK) if target.size > _BLOCK else _ALL
            part = target if block is _ALL else target[block]
            if undo is not None:
                undo.keep(part)
            result = part if total is None else total[: part.size]
            self._add(block, result)
            self._divide(result, part)

    def _may_begin_in(self, target: Array) -> bool:
        """Return whether `target` is none but the first two terms, and so may hold their sum.

        Two views of one array are two objects, so their memory is compared.
        """
        return not any(np.may_share_memory(values, target) for _, values in self.terms[2:])

    def _add(self, block: slice, into: Array) -> None:
        if self.weighted:
            scaled = np.empty_like(into)
            into[:] = 0
            for weight, values in self.terms:
                np.multiply(values[block], into.dtype.type(weight), out=scaled)
                np.add(into, scaled, out=into)
            return
        first, second, *others = [values if block is _ALL else values[block] for _, values in self.terms]
        if first.dtype is into.dtype:
            np.add(first, second, into)
        else:
            np.add(first, second, out=into, dtype=into.dtype)
        for values in others:
            np.add(into, values, into)

    def _divide(self, total: Array, target: Array) -> None:
        if self.divisor is None:
            if target is not total:
                np.copyto(target, total, casting="same_kind")
        else:
            divide, operand = _division(self.divisor, total.dtype)
            divide(total, operand, target)


_ALL = slice(None)
_HALF = np.dtype(np.float16).char


@lru_cache(maxsize=64)
def _division(divisor: float, dtype: np.dtype[Any]) -> tuple[np.ufunc, Array]:
    """Return a function and its second operand that divide by `divisor`. An array costs less than a number does."""
    if math.frexp(divisor)[0] == 0.5:  # a power of two: the same bits in a third of the time
        return np.multiply, np.array(1 / divisor, dtype)
    return np.divide, np.array(divisor, dtype)


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which arrays of `dtype` are summed. Local."""
    return np.dtype(np.float32) if dtype.char == _HALF else dtype


@dataclass(frozen=True)
class GatherFunction:
    """A built-in gather function. There is at least one update."""

    name: str
    newest: bool
    """Whether it merges only the newest waiting message of each sender."""
    begin: Callable[[Own, Updates], Blend | None]
    """A function that returns the new values, not computed yet; None where own.values stays, or is changed already."""
    may_be_checked: bool = False
    """Whether `begin` changes nothing that counts: its result is dropped where a message was overwritten meanwhile."""
    floating: bool = False
    """Whether it needs a floating-point vector."""
    weigh: Callable[[float], float] | None = None
    """The weight of a model by the examples that are new in it, where messages carry counts of examples."""
    adds: bool = False
    """Whether messages hold increments: those of one sender add up."""

    def merge(self, own: Own, updates: Updates) -> None:
        """Merge the updates into own.values, in place. Local."""
        if (blend := self.begin(own, updates)) is not None:
            blend.store(_flat(own.values))

    def __repr__(self) -> str:
        return f"malt.{self.name}"

    def __reduce__(self) -> str:  # copy and pickle give the one that is compared with
        return self.name


def _average(own: Own, updates: Updates) -> Blend | None:
    """own <- (own + sum of received) / (1 + number received), or as `_mean` by own.counted."""
    if own.counted is not None:
        return _mean(own, updates)
    return Blend(_terms(own, updates), divisor=1 + len(updates))


def _sum(own: Own, updates: Updates) -> Blend:
    """own <- own + sum of received."""
    return Blend(_terms(own, updates))


def _weighted(own: Own, updates: Updates) -> Blend | None:
    """own <- (w own + sum of w_s received_s) / (w + sum of w_s). If all weights are zero, own stays."""
    terms = _terms(own, updates)
    divisor = sum(weight for weight, _ in terms)  # in rank order, so that it has the same bits on all ranks
    return Blend(terms, weighted=True, divisor=divisor) if divisor > 0 else None


def _trained(own: Own, updates: Updates) -> Blend | None:
    """Merge like `_weighted`, with the bits of `_average` where all weights are equal."""
    is_plain = own.weight > 0 and all(update.weight == own.weight for update in updates)
    return _average(own, updates) if is_plain else _weighted(own, updates)


def _mean(own: Own, updates: Updates) -> Blend | None:
    """own <- (w own + sum of w_s received_s) / (sum of w over all that count). If this rank alone counts, own stays.

    w: own.counted. A sender that is not in it does not count: it has failed meanwhile.
    """
    counted = who_counts(own, (one.sender for one in updates))
    weighed = [Term(one.sender, one.step, counted.get(one.sender, 0.0), 0.0, one.values) for one in updates]
    terms = _terms(own._replace(weight=counted[own.rank]), weighed)
    is_plain = len(terms) > 1 and all(weight == 1 for weight, _ in terms)
    divisor = sum(counted[rank] for rank in sorted(counted))  # in rank order, so that it has the same bits on all ranks
    return Blend(terms, weighted=not is_plain, divisor=divisor) if len(counted) > 1 else None


def who_counts(own: Own, senders: Iterable[int]) -> Mapping[int, float]:
    """Return the weights of the ranks that a mean counts: own.counted; without it 1 for this rank and each sender."""
    return dict.fromkeys([own.rank, *senders], 1.0) if own.counted is None else own.counted


def _push_sum(own: Own, updates: Updates) -> Blend | None:
    """own <- (m own + sum of m_s received_s) / (m + sum of m_s), m_s the shares of mass (Kempe, Dobra, Gehrke 2003).

    Push-sum sends an even share of (x, m), and own is x / m. The vector holds the mass m.
    """
    shares = [Term(update.sender, update.step, update.share, 0.0, update.values) for update in updates]
    return _weighted(own._replace(weight=own.mass), shares)


def _replace(own: Own, updates: Updates) -> None:
    """own <- the received update of the highest step, then of the highest rank."""
    np.copyto(own.values, max(updates, key=lambda update: (update.step, update.sender)).values)


def _terms(own: Own, updates: Updates) -> list[tuple[float, Array]]:
    """Return (weight, flat values) of all terms, in the order of ranks, then steps."""
    terms = [(own.rank, 0, own.weight, own.values)]
    for update in updates:
        terms.append((update.sender, update.step, update.weight, update.values))
    terms.sort(key=_by_rank)
    return [(weight, values if values.ndim == 1 else values.reshape(-1)) for _, _, weight, values in terms]


_by_rank = itemgetter(0, 1)


def _flat(values: Array) -> Array:
    """Return a flat view; the array itself if it is flat, so that `is` recognizes it."""
    return values if values.ndim == 1 else values.reshape(-1)


AVG = GatherFunction("AVG", newest=True, begin=_average, may_be_checked=True, floating=True)
"""The mean of the own model and those received: own <- (own + sum of received) / (number received + 1)."""
MEAN = GatherFunction("MEAN", newest=False, begin=_mean, floating=True, adds=True)
"""The mean of increments, such as gradients, over the own array and all in-neighbours. AVG is for models.

An in-neighbour counts if it has scattered: under "bsp" in this step, otherwise since the last gather. What it did not
send counts as zeros. Several increments of one sender are added up, and count once. Under "bsp" along "all" every rank
ends with the same bits. The array may change even if no message arrived.

The own rows of a sparse vector count as receivers read them: rounded to `wire`, and with `top_k` only those that were
sent. The rest is sent later. After the gather the nonzero rows count as changed, as after `clear`.
"""
SUM = GatherFunction("SUM", newest=False, begin=_sum, adds=True)
"""The sum of increments: own <- own + sum of received."""
REPLACE = GatherFunction("REPLACE", newest=True, begin=_replace)
"""The received update of the highest step, then of the highest rank, replaces the own values."""
WEIGHTED = GatherFunction("WEIGHTED", newest=True, begin=_weighted, floating=True)
"""The mean weighted by `scatter(weight=w)`: own <- (w own + sum of w_s received_s) / (w + sum of w_s)."""
TRAINED = GatherFunction("TRAINED", newest=True, begin=_trained, may_be_checked=True, floating=True, weigh=float)
"""The mean of models, each weighted by the examples that it was trained on since this rank last merged it.

`scatter(weight=count)` sends the count of all examples of this rank so far. Under "asp" and "ssp:S" a gather weights a
sender's model by the new examples since its last model that was merged here, and the own model by those since the last
gather. If all are equal it is AVG, bit for bit, as always under "bsp" and "notify-ack". Without any, nothing changes.
"""
ROOT_TRAINED = replace(TRAINED, name="ROOT_TRAINED", weigh=math.sqrt)
"""The same, weighted by the square roots of these counts: a model long on its way counts more, but not alone."""
PUSH_SUM = GatherFunction("PUSH_SUM", newest=False, begin=_push_sum, floating=True)
"""The mean over all ranks along any graph, also if ranks have different numbers of peers (push-sum).

Each message carries a share of the mass of its sender, and the mean weighted by mass stays constant. A message that is
never merged takes its mass with it, and the result is biased:

sync="notify-ack"       no bias: no message is overwritten
sync="bsp"              no bias if a gather follows every scatter: a step without a gather is not merged
sync="asp", "ssp:S"     no bias if the depth is large enough that no message is overwritten: `statistics().overwritten`
                        is then 0 on all ranks

The mass of a rank is 1 at first. A gather with any other function sets it to 1.
"""

BUILT_IN = (AVG, SUM, MEAN, REPLACE, WEIGHTED, TRAINED, PUSH_SUM)


def apply_user_function(function: UserFunction, own: Array, updates: list[Update]) -> None:
    """Merge `updates` into `own` by a user's function, which gets a copy of `own`. Local.

    ValueError: the result is not an array, or has another shape. TypeError: its dtype does not fit. After these errors,
    and if the function raises, `own` is unchanged.
    """
    trial: Any = own.copy()
    result = interruption.exposed(function, trial, updates)
    name = getattr(function, "__name__", repr(function))
    try:
        merged = np.asarray(trial if result is None else result)
    except (ValueError, TypeError) as error:  # rows of different lengths
        raise ValueError(f"gather function {name} returned what is not an array: {error}") from error
    if merged.shape != own.shape:
        raise ValueError(f"gather function {name} returned shape {merged.shape}, the vector's is {own.shape}")
    if not np.can_cast(merged.dtype, own.dtype, "same_kind"):
        raise TypeError(f"gather function {name} returned dtype {merged.dtype}, the vector's is {own.dtype}")
    np.copyto(own, merged.astype(own.dtype, copy=False))  # a value that does not fit may raise, in the first step
