"""The base of the modes in which a group of parameters is exchanged: arrays of one dtype, as one vector.

The arguments of a Replica select one class:

    average="model"                             Models; LoneModel where the group is one array (models.py)
    average="delta", sync="asp" or "ssp:S"      ChangeSums: a message may be overwritten (change_sums.py)
    average="delta", "bsp" or "notify-ack"      Changes since the last exchange (changes.py)
    the same, with `wire` or `top`              BlockChanges: of blocks, rounded; what is left out waits (changes.py)
    the same, with `outer`, some peers alone    Gossip: models, whose mean the outer step moves to (changes.py)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from vol import AVG, GatherFunction, Vector
from vol.update import Array

if TYPE_CHECKING:
    from malt.session.replica.modes.outer import Step

_MERGED, _SENT = "merged", "sent"
"""What is kept of a group that was sent and is not merged yet."""


@dataclass(frozen=True)
class ModeOptions:
    """The arguments of a Replica that concern its modes."""

    rank: int = 0
    mean: GatherFunction = AVG
    """The mean of models."""
    outer: Step | None = None
    wire: str | None = None
    top: float | None = None
    overlaps: bool = False
    """Whether the loop goes on between a send and the merge that follows."""


class ExchangeMode(ABC):
    """A mode of exchanging one group of parameters. Local.

    `arrays`: the arrays of the group, which the loop changes between exchanges. `vector`: one that was made as
    `of_vector` says.
    """

    outer_state: Sequence[Array] = ()
    """The state of the outer step: flat arrays, not copies."""

    def __init__(self, vector: Vector, arrays: Sequence[Array], options: ModeOptions) -> None:
        self.vector = vector
        self.arrays = arrays
        self._mean = options.mean
        ends = [0, *accumulate(array.size for array in arrays)]
        self._places = list(map(slice, ends, ends[1:]))
        """The places of the arrays in the vector, flat."""
        self._size = ends[-1]

    @staticmethod
    def of_vector(arrays: Sequence[Array], options: ModeOptions) -> dict[str, Any]:
        """Return the arguments of malt.vector that depend on the mode."""
        return {"init": flattened(arrays)}

    def bind(self, arrays: Sequence[Array]) -> None:
        """Exchange `arrays` from now on, which hold the parameters in place of the former ones."""
        self.arrays = arrays

    @abstractmethod
    def start(self) -> None:
        """Begin at the parameters that `arrays` hold, which all ranks have. The state of an outer step stays.

        What was sent before, and what waits to be sent, counts no more.
        """

    @abstractmethod
    def send(self, count: float) -> None:
        """Send the parameters, or what has changed, to the peers. `count`: what the loop has counted. One-sided."""

    @abstractmethod
    def merge(self) -> None:
        """Merge what has come from the peers since `send` into `arrays`. What the loop has changed meanwhile is kept.

        Where it fails under "bsp" and "notify-ack" it is to be called again before the next `send`: peers have what was
        sent, or wait until it is merged.
        """

    def state(self) -> dict[str, Array]:
        """Return the state for a rank that rejoins, by name, beside the vector's array: not copies."""
        return {f"outer {place}": array for place, array in enumerate(self.outer_state)}

    def take(self, given: Mapping[str, Array]) -> None:
        """Begin at the state and the parameters of another rank, as a rank that rejoins.

        The vector's array is that of the other rank already.
        """
        for name, array in self.state().items():
            array[...] = given[name]

    def kept(self) -> dict[str, Array]:
        """Return the state from which this rank resumes in a later job, by name, beside the parameters: not copies.

        Local. If the loop goes on between a send and its merge, what has arrived is gathered first, as it is then no
        longer in transit. Under "bsp" this waits, like a merge. What was gathered is merged when its turn comes.
        """
        return self.state()

    def resume(self, given: Mapping[str, Array]) -> None:
        """Go on from what `kept` has returned on this rank in an earlier job. Local."""
        for name, array in self.state().items():
            array[...] = given[name]

    # -- private ----------------------------------------------------------------------------------------------

    def _copy_into(self, flat: Array) -> None:
        """Copy the parameters into `flat`."""
        for array, place in zip(self.arrays, self._places, strict=True):
            flat[place] = array.reshape(-1)

    def _write(self, flat: Array) -> None:
        """Make the parameters those that `flat` holds."""
        for array, place in zip(self.arrays, self._places, strict=True):
            array[...] = flat[place].reshape(array.shape)


class Copied(ExchangeMode):
    """A mode whose vector holds a copy of the parameters, or of what has changed of them. Local."""

    def __init__(self, vector: Vector, arrays: Sequence[Array], options: ModeOptions) -> None:
        super().__init__(vector, arrays, options)
        self._flat = vector.array.reshape(-1)[: self._size]
        """The vector's array, flat; without what a block has beyond the parameters."""
        self._params = self._flat
        """What the parameters become by a merge, flat."""
        self._overlaps = options.overlaps
        self._sent: Array | None = None
        """The parameters when they, or their change, were sent, where the loop may have gone on before the merge."""
        self._is_gathered = False
        """Whether `_params` is already what is to be merged."""

    def start(self) -> None:
        self._sent, self._is_gathered = None, False
        self._copy_into(self._flat)

    def send(self, count: float) -> None:
        self._copy_into(self._flat)
        self._sent = self._flat.copy() if self._overlaps else None
        self._scatter(count)

    def merge(self) -> None:
        if not self._is_gathered:
            try:
                self._gather()
            except BaseException:
                if self._sent is None:  # the loop goes on before the merge is made
                    self._sent = flattened(self.arrays)
                raise
        self._is_gathered = False
        if self._sent is None:
            self._write(self._params)
        else:
            with np.errstate(all="ignore"):  # an error would leave some arrays behind
                self._write(flattened(self.arrays) + (self._params - self._sent))
            self._sent = None

    def take(self, given: Mapping[str, Array]) -> None:
        super().take(given)
        self._write(self._params)

    def kept(self) -> dict[str, Array]:
        if self._sent is None:
            return super().kept()
        if not self._is_gathered:
            self._gather()
            self._is_gathered = True
        return {**super().kept(), _MERGED: self._params, _SENT: self._sent}

    def resume(self, given: Mapping[str, Array]) -> None:
        super().resume(given)
        if _SENT in given:
            self._params[...] = given[_MERGED]
            self._sent, self._is_gathered = given[_SENT].copy(), True

    # -- private ----------------------------------------------------------------------------------------------

    def _scatter(self, count: float) -> None:
        """Send what the vector holds, which is the parameters now."""
        self.vector.scatter(weight=count)

    @abstractmethod
    def _gather(self) -> None:
        """Make `_params` what the parameters become."""


def flattened(arrays: Sequence[Array]) -> Array:
    """The values of all arrays, one after the other, as a new array. Pure."""
    return np.concatenate([array.reshape(-1) for array in arrays])
