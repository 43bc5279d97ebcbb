"""Detection of arrays that a loop does not change in place. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vol.update import Array

if TYPE_CHECKING:
    from malt.session.replica.parameters import Parameters

CHECKS = 3
"""An array that is unchanged in so many checks is warned about."""


class Unchanged:
    """The arrays of `parameters` that have not been seen to change between two exchanges yet. Local.

    Each array is watched until it has changed once, or was checked often enough. A warning names those left then.
    `replica`: the name of the Replica. report(line) prints a line on one rank, and returns whether it is this one.
    """

    def __init__(self, parameters: Parameters, replica: str, report: Callable[[str], bool]) -> None:
        self._parameters, self._replica, self._print = parameters, replica, report
        arrays = parameters.arrays
        self._left = {place: 0 for place in parameters.floats if arrays[place].size}
        """The last checksums of the arrays that have not changed yet, by place."""
        self._checks = 0
        self.is_watching = True
        """Whether arrays are still watched."""
        self._has_warned = False
        self.go_on()

    def trust(self) -> None:
        """Watch no longer: the arrays are known to be those that are trained."""
        self.is_watching, self._left = False, {}

    def check(self) -> None:
        """Stop watching the arrays that have changed since they were recorded."""
        arrays = self._parameters.arrays
        self._left = {place: was for place, was in self._left.items() if checksum(arrays[place]) == was}
        self._checks += 1

    def go_on(self) -> None:
        """Record the arrays as they are now, before the loop goes on; or warn, after enough checks."""
        if self._left and self._checks < CHECKS:
            self._left = {place: checksum(self._parameters.arrays[place]) for place in self._left}
            return
        self.is_watching = False
        self._warn(self._names)

    def report(self) -> Mapping[str, Any]:
        """Check, and say to the other ranks what is left."""
        if self.is_watching:
            self.check()
        return {"_unchanged": self._names, "_warned": self._has_warned}

    def compare(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Warn of arrays that changed on no rank that counted a step, unless a rank has warned already.

        `reports`: what ranks have reported, and whether they have `_stepped`.
        """
        stepped = [one["_unchanged"] for one in reports if one["_stepped"]]
        if stepped and not any(one["_warned"] for one in reports):
            self._warn([name for name in stepped[0] if all(name in names for names in stepped)])

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [self._parameters.names[place] for place in self._left]

    def _warn(self, names: Sequence[str]) -> None:
        if names:
            self._has_warned = self._print(
                f"malt: {self._replica}: {', '.join(names)} did not change between exchanges: does the loop make a new "
                "array, as in w = w + g, which the Replica does not know of? Change it in place (w += g), or give "
                "malt.Replica the dict or list that holds it, or a function that returns it (lambda: model.coef_), "
                "with set= where that cannot be written into. An array that is frozen may be left out."
            )


def checksum(array: Array) -> int:
    """The CRC-32 of all bytes of `array`. Pure."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
