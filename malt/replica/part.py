"""The parameters of one dtype, as one vector: what is sent of them, and what is made of what comes.

What is sent depends on `average` and `sync`:

    "model"                              the parameters
    "delta", "asp" or "ssp:S"            sums of changes: a message may be overwritten (changesums.py)
    "delta", "bsp" or "notify-ack"       the change since the last exchange
    the same, with a wire or top         blocks of that change, rounded; what is left out waits (vol/sparse)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dstorm import parse
from malt.replica.changesums import ChangeSums
from malt.replica.outer import Outer, Step
from malt.session.vectors import vector
from vol import AVG, SUM, DenseVector, SparseVector, Vector
from vol.update import Array

BLOCK = 64
"""The elements of a block, which has one scale, and one number in a message."""


@dataclass(frozen=True)
class Way:
    """How parameters are exchanged: the arguments of the Replica that concern a part."""

    rank: int
    delta: bool
    outer: Step | None = None
    wire: str | None = None
    top: float | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether less than the whole change is sent."""
        return self.wire is not None or self.top is not None


class Part:
    """The arrays of one dtype, at `places` among those of the Replica.

    With average="model" a lone array is the array of the vector itself, not a copy. So is an array that replaces it.
    `options`: those of the vector.
    """

    def __init__(self, places: Sequence[int], arrays: Sequence[Array], way: Way, **options: Any) -> None:
        self._places, self._way = places, way
        self._in_place = not way.delta and len(places) == 1
        self._as_sums = way.delta and not parse(options["sync"]).acknowledges
        mine = self._mine(arrays)
        self._size = sum(array.size for array in mine)
        self.vector = self._narrow(mine[0].dtype, **options) if way.is_narrow else self._whole(mine, **options)
        self._flat = self.vector.array.reshape(-1)[: self._size]
        """The vector's array, flat; without what a block has beyond the parameters."""

    def start(self, arrays: Sequence[Array]) -> None:
        """Record `arrays` as the parameters that all ranks start from."""
        if not self._in_place:
            self._copy_in(self._mine(arrays))
        if self._as_sums:
            assert isinstance(self.vector, DenseVector)
            self._sums = ChangeSums(self.vector, self._way.rank, self._way.outer)
        elif self._way.delta:
            self._base, self._outer = self._flat.copy(), Outer(self._way.outer, self._flat)

    @property
    def outer_state(self) -> list[Array]:
        """The state of the outer optimizer: flat arrays, not copies."""
        if not self._way.delta:
            return []
        return self._sums.outer.state if self._as_sums else self._outer.state

    def exchange(self, arrays: Sequence[Array]) -> None:
        """Send the parameters to the peers, merge what has come from them, and write the result. One-sided."""
        mine = self._mine(arrays)
        if self._in_place:
            assert isinstance(self.vector, DenseVector)
            if mine[0] is not self.vector.array:
                self.vector.adopt(mine[0])
            self._average()
        elif self._as_sums:
            self._sums.exchange(mine)
            self._store(self._sums.params, mine)
        elif self._way.delta:
            self._copy_in(mine)
            self._exchange_changes()
            self._store(self._base, mine)
        else:
            self._copy_in(mine)
            self._average()
            self._store(self._flat, mine)

    # -- private ----------------------------------------------------------------------------------------------

    def _whole(self, mine: Sequence[Array], **options: Any) -> Vector:
        return vector(mine[0] if self._in_place else np.concatenate([one.reshape(-1) for one in mine]), **options)

    def _narrow(self, dtype: np.dtype[Any], **options: Any) -> Vector:
        blocks = -(-self._size // BLOCK)
        count = max(1, math.ceil((1.0 if self._way.top is None else self._way.top) * blocks))
        table = np.zeros((blocks, BLOCK), dtype)
        return vector(table, kind="sparse", top_k=count, wire=self._way.wire, **options)

    def _exchange_changes(self) -> None:
        """Make a step of the base by the mean of changes. The vector's array holds the parameters."""
        np.subtract(self._flat, self._base, out=self._flat)
        self.vector.scatter()
        if isinstance(self.vector, SparseVector):
            self._keep_sent(self.vector)
        self.vector.gather(SUM)
        self._outer.apply(self._base, self._flat / self._flat.dtype.type(1 + self.vector.in_degree))

    def _keep_sent(self, sender: SparseVector) -> None:
        """Keep of this rank's change what others read of it, so that all ranks make the same step."""
        if sender.sent is not None:
            sender.array[:] = 0
            sender.array[sender.sent.rows] = sender.sent.values

    def _average(self) -> None:
        self.vector.scatter()
        self.vector.gather(AVG)

    def _mine(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[place] for place in self._places]

    def _copy_in(self, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            self._flat[start : start + array.size] = array.reshape(-1)
            start += array.size

    def _store(self, source: Array, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            array[...] = source[start : start + array.size].reshape(array.shape)
            start += array.size
