"""Runs a program on one rank and notes what its Replicas do: the child of `malt plan`.

python -m malt.commands.plan.profile_run FILE m|f PROGRAM ARGS...

FILE gets what was noted, as JSON, if the program ends well. m: PROGRAM is a module.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from malt.session import session
from malt.watch import reports


class Probe:
    """A `Meter` of one rank."""

    def __init__(self) -> None:
        self.replicas: list[int] = []
        """The bytes of each Replica."""
        self.every = 1
        self.nbytes = 0
        """The bytes of the messages of all exchanges, to one peer."""
        self.computed_s: list[float] = []
        """Seconds from the end of an exchange, or of the last report, to the next exchange."""
        self.exchanges = 0
        self.epochs: set[float] = set()
        self._since: float | None = None

    def made(self, nbytes: int, every: int) -> None:
        """Note the Replica, and that compute begins. Local."""
        self.replicas.append(nbytes)
        self.every = every
        self._since = time.perf_counter()

    def begin(self, nbytes: int) -> None:
        """Note that compute has ended. Local."""
        if self._since is not None:
            self.computed_s.append(time.perf_counter() - self._since)
        self.nbytes += nbytes
        self.exchanges += 1

    def end(self) -> None:
        """Note that compute begins again. Local."""
        self._since = time.perf_counter()

    def reported(self, numbers: Mapping[str, float]) -> None:
        """A call of malt.report: an epoch may have ended, and was evaluated."""
        if "epoch" in numbers:
            self.epochs.add(numbers["epoch"])
            self._since = None

    def noted(self) -> dict[str, object]:
        """Return the values that are written into FILE."""
        return {
            "replicas": self.replicas,
            "every": self.every,
            "exchanges": self.exchanges,
            "nbytes": self.nbytes / max(1, self.exchanges),
            "compute_s": statistics.median(self.computed_s or [0.0]),
            "epochs": len(self.epochs),
        }


def main() -> None:
    """Run the program that the command line names, and write what was noted, where it ends well."""
    file, kind, program, *arguments = sys.argv[1:]
    probe = Probe()
    session.init().meter = probe
    reports.on_report(probe.reported)
    sys.argv = [program, *arguments]
    try:
        if kind == "m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(program))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    Path(file).write_text(json.dumps(probe.noted()), encoding="utf-8")


if __name__ == "__main__":
    main()
