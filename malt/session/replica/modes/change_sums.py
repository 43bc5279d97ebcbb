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

from malt.session.replica.modes.exchange_mode import ExchangeMode, ModeOptions, flattened
from malt.session.replica.modes.outer import Outer
from vol import GatherFunction, Vector
from vol.merging.merge import Blend, Own, Updates, wide_dtype
from vol.update import Array

_BLOCK = 65_536
"""Elements whose changes are added at once: their arrays stay in the cache of a core."""


class ChangeSums(ExchangeMode):
    """This rank's sum, the newest ones of its in-neighbours, and the parameters that follow from them. Local.

    `vector.array` carries this rank's sum. Values overflow in silence.
    """

    def __init__(self, vector: Vector, arrays: Sequence[Array], options: ModeOptions) -> None:
        super().__init__(vector, arrays, options)
        self._rank = options.rank
        self._params = vector.array.copy()
        """The parameters after the last exchange, flat."""
        wide = wide_dtype(vector.array.dtype)
        self._own = vector.array if wide == vector.array.dtype else vector.array.astype(wide)
        self._function = GatherFunction("sums of changes", newest=True, begin=self._copy, may_be_checked=True)

    def start(self) -> None:
        self._copy_into(self._params)
        self._set_own(self._params)
        vector = self.vector
        self._received = {source: vector.array.copy() for source in vector.sources}
        self._arriving = {source: vector.array.copy() for source in vector.sources}
        """Arrays for the sums of messages, which may be overwritten while they are copied."""
        self._sources, self._merged = vector.sources, sorted([self._rank, *vector.sources])
        """The in-neighbours, and the ranks whose sums are merged."""
        self._offset: Array | None = None
        """The parameters less the mean of sums, once neighbours have changed."""

    def send(self, count: float) -> None:
        """Send the sum of this rank's changes. One-sided.

        The first sum of a rank that becomes a neighbour because another failed is where that neighbour begins.
        """
        with np.errstate(all="ignore"):
            if self._sources != self.vector.sources or len(self._merged) != 1 + len(self._received):
                self._begin_again()
            self._add_changes()
            self._copy_own()
        self.vector.scatter()

    def merge(self) -> None:
        with np.errstate(all="ignore"):
            for sender in self.vector.gather(self._function).senders:
                before, self._received[sender] = self._received.get(sender), self._arriving.pop(sender)
                if before is not None:
                    self._arriving[sender] = before
            if len(self._merged) > 1:  # else a first sum has come: it is merged from the next send on
                self._take_mean()
            self._write(self._params)

    def state(self) -> dict[str, Array]:
        """Return the state for a rank that rejoins, with the newest sums, by rank."""
        sums = {_sum_of(rank): values for rank, values in [(self._rank, self.vector.array), *self._received.items()]}
        return {"params": self._params, **sums, **super().state()}

    def take(self, given: Mapping[str, Array]) -> None:
        """Begin at the state and the parameters of another rank, as a rank that rejoins.

        The rank's own sum continues from the last one that the other rank has received, so that no rank sees a jump.
        """
        for name, array in super().state().items():
            array[...] = given[name]
        self._write(given["params"])
        self.start()
        self._set_own(given.get(_sum_of(self._rank), self._params))
        self._received = {source: given[_sum_of(source)] for source in self._sources if _sum_of(source) in given}
        self._begin_again()

    def kept(self) -> dict[str, Array]:
        """Return the state for a later job. Ranks have taken the mean before, and begin at it: sums are not kept."""
        return ExchangeMode.state(self)

    def resume(self, given: Mapping[str, Array]) -> None:
        for name, array in ExchangeMode.state(self).items():
            array[...] = given[name]

    # -- private ----------------------------------------------------------------------------------------------

    def _set_own(self, values: Array) -> None:
        np.copyto(self._own, values)
        self._copy_own()

    def _copy_own(self) -> None:
        if self._own is not self.vector.array:
            np.copyto(self.vector.array, self._own, casting="same_kind")

    def _add_changes(self) -> None:
        """Add what the loop has changed to this rank's sum. From here on `_params` are what `arrays` hold."""
        for values, block in _blocks(self.arrays):
            own, change = self._own[block], self._params[block]
            np.subtract(values, change, out=change)
            np.add(own, change, out=own)
            change[:] = values

    def _copy(self, own: Own, updates: Updates) -> None:
        """Copy the sums that have arrived. They count once the gather has found them whole."""
        for update in updates:
            if update.sender not in self._arriving:
                self._arriving[update.sender] = np.empty_like(self._params)
            np.copyto(self._arriving[update.sender], update.values)

    def _take_mean(self) -> None:
        sums = {self._rank: self.vector.array, **self._received}
        Blend([(1.0, sums[rank]) for rank in self._merged], divisor=1 + len(self._sources)).compute(self._params)
        if self._offset is not None:
            self._params += self._offset

    def _begin_again(self) -> None:
        """Merge the sums of the neighbours that there are now. The parameters stay as they are."""
        before = self._params.copy()
        self._sources, self._merged = self.vector.sources, sorted([self._rank, *self._received])
        self._offset = None
        if self._received:
            self._take_mean()
        self._offset = before - self._params
        self._params[:] = before


class SteppedChangeSums(ChangeSums):
    """The same with an outer step, which each rank makes with its own change. Local.

    Its result is the change of the rank's sum. So a late message costs no momentum.
    """

    def __init__(self, vector: Vector, arrays: Sequence[Array], options: ModeOptions) -> None:
        super().__init__(vector, arrays, options)
        self._outer = Outer(options.outer, self._own)
        self.outer_state = self._outer.state

    # -- private ----------------------------------------------------------------------------------------------

    def _add_changes(self) -> None:
        np.subtract(flattened(self.arrays), self._params, out=self._params)
        self._outer.apply(self._own, self._params)
        self._copy_into(self._params)


def _sum_of(rank: int) -> str:
    return f"sum of rank {rank}"


def _blocks(arrays: Sequence[Array]) -> Iterator[tuple[Array, slice]]:
    """Yield the values of all arrays, flat, block by block, each with its place in the vector."""
    start = 0
    for array in arrays:
        flat = array.reshape(-1)
        for first in range(0, flat.size, _BLOCK):
            values = flat[first : first + _BLOCK]
            yield values, slice(start + first, start + first + values.size)
        start += flat.size
