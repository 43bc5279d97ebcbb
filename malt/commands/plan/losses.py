"""After how many epochs a program on the harness reaches a loss: it trains on simulated ranks."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dstorm import Network
from malt.commands.plan.measuring import Measured
from malt.commands.plan.prediction import MOST_SIMULATED, NETWORKS, Choice, hosts_of
from malt.launch.machine.mpi_library import LaunchError
from malt.session.session import world
from malt.session.simulation import compute, simulate

INTERVALS: Final = (1, 4)
"""How many times the interval of the program. Wider ones are not trained."""
WITHIN: Final = 0.02
"""How far above the last loss of one rank the loss is that is to be reached, as a part of it."""
_ANY: Final = "any"
"""Stands for the network of ranks that wait for each other: what they learn is the same on each."""


_TRIED: Final = 16
"""From so many ranks on a fourth of them is tried first."""


class Charge:
    """A `Meter` that makes each exchange of a simulated rank come after its compute."""

    def __init__(self, compute_s: float) -> None:
        self._compute_s = compute_s

    def made(self, nbytes: int, every: int) -> None:
        """Do nothing."""

    def begin(self, nbytes: int) -> None:
        """Spend the rank's compute time. Local."""
        compute(self._compute_s)

    def end(self) -> None:
        """Do nothing."""


class Losses:
    """The epochs that a program takes to reach `target`, by choice, number of ranks and which of `networks`.

    `slots`: how many ranks a host has.
    """

    def __init__(
        self, program: str, arguments: Sequence[str], measured: Measured, target: float, slots: int = 1,
        networks: Mapping[str, tuple[float, float]] = NETWORKS,
    ) -> None:  # fmt: skip
        self._program, self._arguments, self._measured, self._slots = program, arguments, measured, slots
        self._networks = {**networks, _ANY: next(iter(networks.values()))}
        self.target = target
        self._known: dict[tuple[Choice, int, str], float] = {}

    def epochs(self, choice: Choice, ranks: int, network: str) -> float:
        """Epochs to the target; infinity: it is not reached. With more ranks than are simulated: extrapolated.

        What a fourth of the ranks does not reach is not tried.
        """
        key = choice, ranks, network if choice.sync == "asp" else _ANY
        if key not in self._known:
            if ranks > MOST_SIMULATED:
                self._known[key] = self._extrapolated(*key)
            elif ranks >= _TRIED and self.epochs(choice, ranks // 4, network) == math.inf:
                self._known[key] = math.inf
            else:
                self._known[key] = self._trained(*key)
        return self._known[key]

    def _extrapolated(self, choice: Choice, ranks: int, network: str) -> float:
        """They grow by the same factor with each fourfold number of ranks, and never fall."""
        few, many = (self.epochs(choice, size, network) for size in (MOST_SIMULATED // 4, MOST_SIMULATED))
        if math.inf in (few, many):
            return math.inf
        growth = max(1.0, many / few)
        return many * math.pow(growth, math.log(ranks / MOST_SIMULATED, 4))

    def _trained(self, choice: Choice, ranks: int, name: str) -> float:
        module = importlib.import_module(f"{self._program}.program")
        network = Network(*self._networks[name], hosts_of(ranks, self._slots))
        every = self._measured.every * choice.interval
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "report")
            words = [*self._arguments, "--graph", choice.graph, "--sync", choice.sync]
            words += ["--exchange-every", str(every), "--json", str(file)]

            def live(rank: int) -> None:
                """Run the program on one of the simulated ranks."""
                world().meter = Charge(self._measured.compute_s * choice.interval)
                module.run(words)

            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    simulate(live, ranks, network=network)
            except Exception as error:
                raise LaunchError(f"{self._program} failed on {ranks} simulated ranks: {error}") from None
            epochs = json.loads(file.read_text(encoding="utf-8"))["epochs"]
        found = [float(epoch[self._measured.loss]) for epoch in epochs]
        return next((float(epoch) for epoch, loss in enumerate(found, 1) if loss <= self.target), math.inf)
