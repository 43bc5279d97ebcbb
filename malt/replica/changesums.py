"""Changes of a model that are sent as their sums since the start, so that no message is missed that is overwritten.

Averages of models under asp are held back by old models: a rank merges what the others were one exchange ago, or more.
A change counts once, whenever it arrives.

A sum begins at the parameters that all ranks start from. The parameters are then the mean of the newest sums, computed
anew at each exchange. A sum is rounded on its own rank alone, as the parameters are by what the loop adds to them. All
ranks take the same bits of it. So ranks do not drift apart, however many exchanges there are: once all messages have
arrived, they have the same parameters bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from malt.replica.outer import Outer, Step
from vol import DenseVector, GatherFunction
from vol.merging.merge import Blend, Own, Updates, wide_dtype
from vol.update import Array

_BLOCK = 65_536
"""Elements whose changes are added at once: their arrays stay in the cache of a core."""


class ChangeSums:
    """This rank's sum, the newest ones of its in-neighbours, and the parameters that follow from them. Local.

    `vector.array` holds the parameters at the start, and carries this rank's sum from then on. `outer`: the step that a
    rank makes with its own change, and whose result is the change of its sum. So a late message costs no momentum.
    """

    def __init__(self, vector: DenseVector, rank: int, outer: Step | None = None) -> None:
        self._vector, self._rank = vector, rank
        self.params = vector.array.copy()
        """The parameters after the last exchange, flat."""
        wide = wide_dtype(vector.array.dtype)
        self._own = vector.array if wide == vector.array.dtype else vector.array.astype(wide)
        self.outer = Outer(outer, self._own)
        self._has_step = outer is not None
        self._begin()
        self._function = GatherFunction("sums of changes", newest=True, merge=self._copy, blend=self._copy)

    def _begin(self) -> None:
        """Begin at the parameters that all ranks have, as `params` and the vector's array hold them."""
        vector = self._vector
        self._received = {source: vector.array.copy() for source in vector.sources}
        self._arriving = {source: vector.array.copy() for source in vector.sources}
        """Arrays for the sums of messages, which may be overwritten while they are copied."""
        self._sources, self._merged = vector.sources, sorted([self._rank, *vector.sources])
        """The in-neighbours, and the ranks whose sums are merged."""
        self._offset: Array | None = None
        """The parameters less the mean of sums, once neighbours have changed."""

    def start_again(self) -> None:
        """Begin at what the vector's array holds now, which all ranks have. The state of the outer step stays."""
        self.params[:] = self._vector.array
        if self._own is not self._vector.array:
            self._own[:] = self._vector.array
        self._begin()

    @property
    def by_rank(self) -> dict[int, Array]:
        """The newest sums, by rank, this rank's own included: not copies."""
        return {self._rank: self._vector.array, **self._received}

    def go_on(self, params: Array, sums: Mapping[int, Array]) -> None:
        """Begin as a rank that has come back, where another one has `params`, and `sums` by rank.

        Its own sum goes on from what that has got of it last, so that nobody sees a leap.
        """
        np.copyto(self._own, sums.get(self._rank, params), casting="same_kind")
        if self._own is not self._vector.array:
            np.copyto(self._vector.array, self._own, casting="same_kind")
        self.params[:] = params
        self._received = {source: sums[source].copy() for source in self._vector.sources if source in sums}
        self._begin_again()

    def exchange(self, arrays: Sequence[Array]) -> None:
        """Send the changes of `arrays`, which hold `params` until the loop changes them, and merge others. One-sided.

        A rank that became a neighbour when another failed has been none: its first sum is where it begins.
        """
        if self._sources != self._vector.sources or len(self._merged) != 1 + len(self._received):
            self._begin_again()
        self._add_changes(arrays)
        is_merged = False
        try:
            self._vector.scatter()
            for sender in self._vector.gather(self._function).senders:
                before, self._received[sender] = self._received.get(sender), self._arriving.pop(sender)
                if before is not None:
                    self._arriving[sender] = before
            if self._received:
                self._take_mean()
                is_merged = True
        finally:
            if not is_merged:
                self._note(arrays)

    def _note(self, arrays: Sequence[Array]) -> None:
        """Note what `arrays` hold, all of which is in the sum."""
        for values, block in _blocks(arrays):
            self.params[block] = values

    def _add_changes(self, arrays: Sequence[Array]) -> None:
        """Add what the loop has changed to this rank's sum. `params` hold the changes until all is merged."""
        for values, block in _blocks(arrays):
            own, change = self._own[block], self.params[block]
            np.subtract(values, change, out=change)
            if not self._has_step:
                np.add(own, change, out=own)
        if self._has_step:
            self.outer.apply(self._own, self.params)
        if self._own is not self._vector.array:
            np.copyto(self._vector.array, self._own, casting="same_kind")

    def _copy(self, own: Own, updates: Updates) -> None:
        """Copy the sums that have arrived. They count once the gather has found them whole."""
        for update in updates:
            if update.sender not in self._arriving:
                self._arriving[update.sender] = np.empty_like(self.params)
            np.copyto(self._arriving[update.sender], update.values)

    def _take_mean(self) -> None:
        sums = {self._rank: self._vector.array, **self._received}
        Blend([(1.0, sums[rank]) for rank in self._merged], divisor=1 + len(self._sources)).store(self.params)
        if self._offset is not None:
            self.params += self._offset

    def _begin_again(self) -> None:
        """Merge the sums of the neighbours that there are now. The parameters stay as they are."""
        before = self.params.copy()
        self._sources, self._merged = self._vector.sources, sorted([self._rank, *self._received])
        self._offset = None
        if self._received:
            self._take_mean()
        self._offset = before - self.params
        self.params[:] = before


def _blocks(arrays: Sequence[Array]) -> Iterator[tuple[Array, slice]]:
    """Yield the values of all arrays, flat, block by block, each with its place in the vector."""
    start = 0
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, flat.size, _BLOCK):
            values = flat[first : first + _BLOCK]
            yield values, slice(start + first, start + first + values.size)
        start += flat.size
