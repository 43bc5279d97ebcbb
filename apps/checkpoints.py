"""What --checkpoint, --checkpoint-every and --resume ask of a program: where it goes on, what it keeps and when."""

from __future__ import annotations

import os
import zlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import malt
from apps.program import say
from apps.report import Clock, Mark, after
from malt.agreement import succeed
from malt.launcher import RESTART
from malt.session import is_lowest

State = Mapping[str, Any]


class Checkpoints:
    """The --checkpoint file of a program, if there is one.

    Collective. `match`: what a file must have been written with. ValueError, OSError: as malt.Checkpoint.load.
    """

    def __init__(self, options: Namespace, program: str, match: Mapping[str, Any]) -> None:
        self._file: malt.Checkpoint | None = None
        self.state: dict[str, NDArray[Any]] = {}
        """What to go on with; empty: the run starts from the beginning."""
        if options.checkpoint is not None:
            self._file = malt.Checkpoint(options.checkpoint, options.checkpoint_every, program=program, match=match)
            if options.resume or is_restarted():
                self.state = self._file.load() or {}
                if not self.state:
                    say(f"{options.checkpoint}: no checkpoint yet: the training starts from the beginning")

    @property
    def is_on(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    @property
    def epoch(self) -> int:
        """How many epochs were done before this run."""
        return int(self.state["epoch"]) if self.state else 0

    @property
    def before(self) -> Mark:
        """What was done before this run, by all ranks; bytes and messages are not known."""
        if not self.state:
            return Mark()
        return Mark(examples=int(self.state["examples"]), seconds=float(self.state["seconds"]))

    def save(self, epoch: int, examples: int, clock: Clock, state: Callable[[], State], force: bool = False) -> None:
        """Write what state() returns, if that is due, on the lowest rank alone. Local.

        `epoch`: the one that has ended. `examples`, `clock`: what all ranks have trained on in this run, and how long.
        """
        if self._file is not None and is_lowest() and (force or self._file.due()):
            done = after(self.before, Mark(examples, clock.seconds))
            numbers = {"epoch": epoch, "examples": done.examples, "seconds": done.seconds}
            self._file.save({**numbers, **state()}, force=True)

    def due_together(self, force: bool = False) -> bool:
        """Whether a save is due, or forced, the same on all ranks. Collective, where there is a file."""
        return self._file is not None and (force or self._file.due_together())

    def __str__(self) -> str:
        """For the introduction."""
        return f", resumed after epoch {self.epoch:,}" if self.state else ""


def check_checkpoint(options: Namespace) -> None:
    """Refuse options that do not go together, and to overwrite a file. Collective.

    ValueError, on all ranks. With --resume, or started again by `malt run --restarts`, a job goes on with the file, if
    there is one: one and the same command line will do for its first run and for all that follow.
    """

    def check() -> None:
        path = options.checkpoint
        if path is None:
            if options.resume:
                raise ValueError("--resume needs --checkpoint FILE, to go on from")
            return
        if any(other and os.path.realpath(other) == os.path.realpath(path) for other in (options.save, options.json)):
            raise ValueError(f"{path}: --checkpoint needs a file of its own")
        if is_lowest() and not (options.resume or is_restarted()) and os.path.exists(path):
            raise ValueError(f"{path}: the file is there: --resume goes on from it; remove it to start anew")

    succeed(malt.init().transport, check)


def is_restarted() -> bool:
    """Whether `malt run --restarts` runs this job in place of one that died. Local, the same on all ranks."""
    return os.environ.get(RESTART, "0") not in ("", "0")


def fingerprint(*arrays: NDArray[Any]) -> int:
    """CRC-32 of some data: another number for other data. Local."""
    check = 0
    for array in arrays:
        check = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, check)
    return check
