"""The parameters of one dtype, as one vector: what is sent of them, and what is made of what comes.

What is sent depends on `average` and `sync`:

    "model"                              the parameters; with a wire rounded where they leave for other hosts
    "delta", "asp" or "ssp:S"            sums of changes: a message may be overwritten (changesums.py)
    "delta", "bsp" or "notify-ack"       the change since the last exchange
    the same, with a wire or top         blocks of that change, rounded; what is left out waits (vol/sparse)
    "delta", outer, some peers alone     the parameters, whose mean the outer step moves to (NoLoCo)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dstorm import interruption, parse
from malt.replica.changesums import ChangeSums
from malt.replica.outer import Outer, Step
from malt.session.vectors import vector
from vol import AVG, SUM, DenseVector, SparseVector, Vector
from vol.merging.merge import ROOT_TRAINED
from vol.update import Array

BLOCK = 64
"""The elements of a block, which has one scale, and one number in a message."""


@dataclass(frozen=True)
class Way:
    """How parameters are exchanged: the arguments of the Replica that concern a part."""

    rank: int
    delta: bool
    by_host: bool = False
    """Whether there are few edges between hosts, and many inside them: models weigh by what is new in them."""
    outer: Step | None = None
    wire: str | None = None
    top: float | None = None
    overlaps: bool = False
    """Whether the loop goes on between a send and the merge that follows."""
    gossips: bool = False
    """Whether an outer step is one of ranks that do not hear of all others. So it must bring them together, too."""

    @property
    def is_narrow(self) -> bool:
        """Whether less than the whole change is sent."""
        return self.delta and (self.wire is not None or self.top is not None)


def divided(places: Sequence[int], arrays: Sequence[Array], count: int) -> list[list[int]]:
    """The places of arrays in `count` lists of about as many elements, in their order. A list may be missing. Pure."""
    whole = sum(arrays[place].size for place in places)
    lists: dict[int, list[int]] = {}
    before = 0
    for place in places:
        middle = before + arrays[place].size / 2
        lists.setdefault(min(int(count * middle / max(whole, 1)), count - 1), []).append(place)
        before += arrays[place].size
    return list(lists.values())


class Part:
    """The arrays of one dtype, at `places` among those of the Replica.

    With average="model" a lone array is the array of the vector itself, not a copy. So is an array that replaces it.
    `options`: those of the vector.
    """

    def __init__(
        self, places: Sequence[int], arrays: Sequence[Array], way: Way, fragment: int = 0, **options: Any
    ) -> None:  # fmt: skip
        self._places, self._way = places, way
        self.fragment = fragment
        """The number of the fragment that it belongs to."""
        self._in_place = not (way.delta or way.overlaps) and len(places) == 1
        acknowledges = parse(options["sync"]).acknowledges
        self._as_sums = way.delta and not way.gossips and not acknowledges
        self._repeats, self._is_due = acknowledges and not way.overlaps, False
        """Whether a merge that has failed is made by the next `send`; whether there is one."""
        mine = self._mine(arrays)
        self._size = sum(array.size for array in mine)
        self.vector = self._narrow(mine[0].dtype, **options) if way.is_narrow else self._whole(mine, **options)
        self._mean = ROOT_TRAINED if way.by_host else AVG
        self._flat = self.vector.array.reshape(-1)[: self._size]
        """The vector's array, flat; without what a block has beyond the parameters."""
        self._sent: Array | None = None
        """The parameters when they, or their change, were sent, where the loop may have gone on before the merge."""
        self.further: Callable[[], list[Array]] = list
        """Further arrays that a rank gets which comes back."""
        self.facts: Callable[[], dict[str, Any]] = dict
        """Further facts that it gets."""
        if (returning := self.vector.returning) is not None:
            returning.values = self._values

    def start(self, arrays: Sequence[Array]) -> None:
        """Record `arrays` as the parameters that all ranks start from."""
        if not self._in_place:
            self._copy_in(self._mine(arrays))
        if self._as_sums:
            assert isinstance(self.vector, DenseVector)
            self._sums = ChangeSums(self.vector, self._way.rank, self._way.outer)
        elif self._way.delta:
            self._base, self._outer = self._flat.copy(), Outer(self._way.outer, self._flat)

    @interruption.whole
    def start_again(self, arrays: Sequence[Array]) -> None:
        """Record `arrays` as the parameters that all ranks have now. The state of an outer step stays. Local.

        What was sent before, and what waits to be sent, counts no more.
        """
        self._is_due, self._sent = False, None
        if not self._in_place:
            self._copy_in(self._mine(arrays))
        if self._as_sums:
            self._sums.start_again()
        elif self._way.delta:
            self._base = self._flat.copy()
        self._set_steady(True)

    def start_from_others(self, arrays: Sequence[Array]) -> None:
        """Begin as a rank that has come back: with the parameters of the rank that gave them, which go into `arrays`.

        Where the others have closed the vector, `arrays` stay as they are.
        """
        given, mine = self.vector.given, self._mine(arrays)
        if given is None:
            return self.start(arrays)
        values, facts = given
        if self._as_sums:
            assert isinstance(self.vector, DenseVector)
            sums = dict(zip(facts["ranks"], values[2:], strict=False))
            self._sums = ChangeSums(self.vector, self._way.rank, self._way.outer)
            self._sums.go_on(values[1], sums)
            self._take(self._sums.outer.state, values, facts)
            self._put_into(mine, values[1])
        elif self._way.delta:
            self._base, self._outer = values[1].copy(), Outer(self._way.outer, values[1])
            self._take(self._outer.state, values, facts)
            self._put_into(mine, self._base)
        elif not self._in_place:
            self._put_into(mine, self._flat)

    @staticmethod
    def _take(state: Sequence[Array], values: Sequence[Array], facts: Mapping[str, Any]) -> None:
        for array, given in zip(state, values[facts["state"] :], strict=False):
            array[...] = given.reshape(array.shape)

    @staticmethod
    def _put_into(mine: Sequence[Array], source: Array) -> None:
        start = 0
        for array in mine:
            array[...] = source[start : start + array.size].reshape(array.shape)
            start += array.size

    def _values(self) -> tuple[list[Array], dict[str, Any]]:
        """What a rank gets that comes back: the vector's array, then what `start_from_others` takes."""
        values, facts = [self.vector.array], self.facts()
        if self._as_sums:
            sums = self._sums.by_rank
            values += [self._sums.params, *sums.values()]
            facts["ranks"] = list(sums)
        elif self._way.delta:
            values.append(self._base)
        facts["state"] = len(values)
        return [*values, *self.outer_state, *self.further()], facts

    @property
    def outer_state(self) -> list[Array]:
        """The state of the outer optimizer: flat arrays, not copies."""
        if not self._way.delta:
            return []
        return self._sums.outer.state if self._as_sums else self._outer.state

    def send(self, arrays: Sequence[Array], count: int) -> None:
        """Send the parameters, or what has changed, to the peers. `count`: what the loop has counted. One-sided."""
        mine = self._mine(arrays)
        if self._in_place:
            assert isinstance(self.vector, DenseVector)
            if mine[0] is not self.vector.array:
                self.vector.adopt(mine[0])
        if self._is_due:
            self.merge(arrays)
        if self.vector.returning is not None:
            self.vector.returning.before_exchange()
        self._set_steady(False)
        if not (self._in_place or self._as_sums):
            self._copy_in(mine)
        if self._way.overlaps:
            self._sent = self._flat.copy()
        if self._way.delta and not (self._as_sums or self._way.gossips):
            with np.errstate(all="ignore"):
                np.subtract(self._flat, self._base, out=self._flat)
        if not self._as_sums:
            self.vector.scatter(weight=float(count))
        if isinstance(self.vector, SparseVector):
            self._keep_sent(self.vector)

    def merge(self, arrays: Sequence[Array]) -> None:
        """Merge what has come from the peers since `send`, and write the result. Local.

        What the loop has changed meanwhile is kept. Values overflow in silence where changes are exchanged: an error
        would leave one on its way, and that would be sent once more.
        """
        mine = self._mine(arrays)
        try:
            with np.errstate(all="ignore") if self._way.delta else contextlib.nullcontext():
                merged = self._merged(mine)
        except BaseException:
            if self._repeats:  # peers have what was sent, or wait until it is merged
                self._is_due = True
                if self._sent is None and not self._in_place:
                    self._sent = np.concatenate([one.reshape(-1) for one in mine])
            raise
        self._is_due = False
        if merged is not None:
            self._store(merged, mine)
        self._set_steady(True)

    # -- private ----------------------------------------------------------------------------------------------

    def _set_steady(self, is_steady: bool) -> None:
        """Set whether a rank that comes back may get what there is; where it may, give it to those that wait."""
        if (returning := self.vector.returning) is not None:
            returning.is_steady = is_steady
            if is_steady and returning.is_awaited:
                returning.merged(self.vector.step)

    def _merged(self, mine: Sequence[Array]) -> Array | None:
        """What the parameters become; None: they are the vector's array, and have become it."""
        if self._as_sums:
            self._sums.exchange(mine)
            return self._sums.params
        if not self._way.delta:
            self.vector.gather(self._mean)
            return None if self._in_place else self._flat
        if self._way.gossips:
            self.vector.gather(AVG)
        self._outer.apply(self._base, self._flat - self._base if self._way.gossips else self._mean_change())
        return self._base

    def _mean_change(self) -> Array:
        if self.vector.is_weighted:
            self.vector.gather(AVG)
            return self._flat
        self.vector.gather(SUM)
        mean: Array = self._flat / self._flat.dtype.type(1 + self.vector.in_degree)
        return mean

    def _whole(self, mine: Sequence[Array], **options: Any) -> Vector:
        array = mine[0] if self._in_place else np.concatenate([one.reshape(-1) for one in mine])
        return vector(array, wire=self._way.wire, **options)

    def _narrow(self, dtype: np.dtype[Any], **options: Any) -> Vector:
        blocks = -(-self._size // BLOCK)
        count = max(1, math.ceil((1.0 if self._way.top is None else self._way.top) * blocks))
        table = np.zeros((blocks, BLOCK), dtype)
        return vector(table, kind="sparse", top_k=count, wire=self._way.wire, **options)

    def _keep_sent(self, sender: SparseVector) -> None:
        """Keep of this rank's change what others read of it, so that all ranks make the same step."""
        if sender.sent is not None:
            sender.array[:] = 0
            sender.array[sender.sent.rows] = sender.sent.values

    def _mine(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[place] for place in self._places]

    def _copy_in(self, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            self._flat[start : start + array.size] = array.reshape(-1)
            start += array.size

    def _store(self, source: Array, mine: Sequence[Array]) -> None:
        if self._sent is not None:
            with np.errstate(all="ignore"):  # an error would leave some arrays behind
                source = np.concatenate([one.reshape(-1) for one in mine]) + (source - self._sent)
        self._put_into(mine, source)
        self._sent = None
