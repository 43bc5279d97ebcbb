"""Parameters are sent whole, and become the mean of the own ones and those received: average="model"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from malt.session.replica.modes.exchange_mode import Copied, ExchangeMode, ModeOptions
from vol import DenseVector
from vol.update import Array


class Models(Copied):
    """The parameters are sent, and become the mean of all. Local.

    With a wire they are rounded where they leave for other hosts.
    """

    @staticmethod
    def of_vector(arrays: Sequence[Array], options: ModeOptions) -> dict[str, Any]:
        return {**Copied.of_vector(arrays, options), "wire": options.wire}

    # -- private ----------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        self.vector.gather(self._mean)


class LoneModel(ExchangeMode):
    """The same for one array: it is the array of the vector itself, not a copy, and so is one that replaces it. Local.

    It is merged before the loop goes on.
    """

    vector: DenseVector

    @staticmethod
    def of_vector(arrays: Sequence[Array], options: ModeOptions) -> dict[str, Any]:
        return {"init": arrays[0], "wire": options.wire}

    def start(self) -> None:
        """Do nothing."""

    def bind(self, arrays: Sequence[Array]) -> None:
        if arrays[0] is not self.vector.array:
            self.vector.adopt(arrays[0])

    def send(self, count: float) -> None:
        self.vector.scatter(weight=count)

    def merge(self) -> None:
        self.vector.gather(self._mean)
