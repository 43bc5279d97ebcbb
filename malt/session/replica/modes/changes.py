"""A step is made by what has changed since the last exchange: average="delta" where no message is overwritten."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from malt.session.replica.modes.exchange_mode import Copied, ModeOptions
from malt.session.replica.modes.outer import Outer
from vol import AVG, SUM, Vector
from vol.update import Array

if TYPE_CHECKING:
    from vol import SparseVector

BLOCK = 64
"""The elements of a block, which has one scale, and one number in a message."""
_PEERS, _LEFT = "peers", "left out"
"""What is kept of what was left out: for whom, and its values."""


class Changes(Copied):
    """The change since the last exchange is sent, and the outer step is made by the mean of all changes. Local.

    Values overflow in silence: an error would leave a change on its way, and that would be sent once more.
    """

    def __init__(self, vector: Vector, arrays: Sequence[Array], options: ModeOptions) -> None:
        super().__init__(vector, arrays, options)
        self._params = np.empty_like(self._flat)  # as they were when changes began, until a merge is made
        self._outer = Outer(options.outer, self._flat)
        self.outer_state = self._outer.state

    def start(self) -> None:
        super().start()
        self._params[:] = self._flat

    def state(self) -> dict[str, Array]:
        return {"params": self._params, **super().state()}

    # -- private ----------------------------------------------------------------------------------------------

    def _scatter(self, count: float) -> None:
        with np.errstate(all="ignore"):
            np.subtract(self._flat, self._params, out=self._flat)
        super()._scatter(count)

    def _gather(self) -> None:
        with np.errstate(all="ignore"):
            self._outer.apply(self._params, self._mean_change())

    def _mean_change(self) -> Array:
        if self.vector.is_weighted:
            self.vector.gather(AVG)
            return self._flat
        self.vector.gather(SUM)
        mean: Array = self._flat / self._flat.dtype.type(1 + self.vector.in_degree)
        return mean


class BlockChanges(Changes):
    """The same, of blocks alone that have changed most, or rounded: what is left out is sent later. Local."""

    vector: SparseVector

    @staticmethod
    def of_vector(arrays: Sequence[Array], options: ModeOptions) -> dict[str, Any]:
        blocks = -(-sum(array.size for array in arrays) // BLOCK)
        count = max(1, math.ceil((1.0 if options.top is None else options.top) * blocks))
        table = np.zeros((blocks, BLOCK), arrays[0].dtype)
        return {"init": table, "kind": "sparse", "top_k": count, "wire": options.wire}

    def kept(self) -> dict[str, Array]:
        """Return the state for a later job, with what was left out so far, by the peers that have not received it."""
        kept = super().kept()
        for place, (peers, values) in enumerate(self.vector.residuals.items()):
            kept |= {f"{_PEERS} {place}": np.array(peers, np.int64), f"{_LEFT} {place}": values}
        return kept

    def resume(self, given: Mapping[str, Array]) -> None:
        super().resume(given)
        places = [name.removeprefix(_PEERS) for name in given if name.startswith(_PEERS)]
        left = {tuple(given[_PEERS + place].tolist()): given[_LEFT + place] for place in places}
        self.vector.take_residuals(left)

    # -- private ----------------------------------------------------------------------------------------------

    def _scatter(self, count: float) -> None:
        super()._scatter(count)
        if (sent := self.vector.sent) is not None:  # of its own change what others read: all ranks make the same step
            self.vector.array[:] = 0
            self.vector.array[sent.rows] = sent.values


class Gossip(Changes):
    """Parameters are sent, and the outer step is made towards the mean of the own ones and those received. Local.

    It is for ranks that do not hear of all others: it must bring them together, too (NoLoCo).
    """

    # -- private ----------------------------------------------------------------------------------------------

    def _scatter(self, count: float) -> None:
        Copied._scatter(self, count)

    def _mean_change(self) -> Array:
        self.vector.gather(AVG)
        change: Array = self._flat - self._params
        return change
