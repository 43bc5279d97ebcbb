"""What --checkpoint, --checkpoint-every and --resume ask of a program: where it goes on, what it keeps and when."""

from __future__ import annotations

import os
import zlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness.agreement import by_rank, on_lowest_rank, print_once
from apps.harness.marks import Clock, Mark, after

State = Mapping[str, Any]

_FINAL: Final = "final_"
"""What the names of the arrays of the final model begin with, beside those of the training state."""


class Checkpoints:
    """The --checkpoint file of a program, if there is one.

    Collective. `match`: what a file must have been written with. ValueError, OSError: as malt.Checkpoint.load.
    """

    def __init__(self, options: Namespace, program: str, match: Mapping[str, Any]) -> None:
        self._file: malt.Checkpoint | None = None
        self._epochs: int = options.epochs
        self._tolerance: float = getattr(options, "tolerance", 0.0)
        self.state: dict[str, NDArray[Any]] = {}
        """What to go on with; empty: the run starts from the beginning."""
        if options.checkpoint is not None:
            self._file = malt.Checkpoint(options.checkpoint, options.checkpoint_every, program=program, match=match)
            if options.resume or is_restarted():
                self.state = self._file.load() or {}
                if not self.state:
                    print_once(f"{options.checkpoint}: no checkpoint yet: the training starts from the beginning")
                elif self.is_over:
                    print_once(
                        f"{options.checkpoint}: the training ended after epoch {self.epoch:,}: nothing is trained"
                    )

    @property
    def is_on(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    @property
    def epoch(self) -> int:
        """How many epochs were done before this run."""
        return int(self.state["epoch"]) if self.state else 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to train: the file has all epochs, or a run of as many that --tolerance ended."""
        if not self.state:
            return False
        ended = "epochs" in self.state and self._tolerance >= float(self.state["tolerance"])
        return self._epochs <= (int(self.state["epochs"]) if ended else self.epoch)

    @property
    def final(self) -> dict[str, NDArray[Any]]:
        """The final model, where the training is over and the file has it: as given to `conclude`."""
        found = self.state if self.is_over else {}
        return {name.removeprefix(_FINAL): array for name, array in found.items() if name.startswith(_FINAL)}

    @property
    def before(self) -> Mark:
        """What was done before this run, by all ranks; bytes and messages are not known."""
        if not self.state:
            return Mark()
        return Mark(examples=int(self.state["examples"]), seconds=float(self.state["seconds"]))

    def save(self, epoch: int, examples: int, clock: Clock, state: Callable[[], State], force: bool = False) -> None:
        """Write what state() returns, if that is due and finite, on the lowest rank alone. Local.

        `epoch`: the one that has ended, not the last: see `conclude`. `examples`, `clock`: what all ranks have trained
        on in this run, and how long.
        """
        if self._file is not None and malt.lowest() and (force or self._file.due()):
            whole = {**self._numbers(epoch, examples, clock.seconds), **state()}
            if all(map(_is_finite, whole.values())):
                self._file.save(whole, force=True)

    def conclude(
        self, epoch: int, examples: int, clock: Clock, state: State, final: State | None = None, early: bool = False
    ) -> None:  # fmt: skip
        """Write the last checkpoint: the state, for a longer training to go on with, and beside it the final model, for
        a run that has nothing left to train. Collective: the lowest rank writes; where it dies over it, the next.

        `final`: the model of all ranks, where the state is not that. `early`: --tolerance has ended the training.
        Nothing is written where a number is not finite.
        """
        if self._file is None:
            return
        file, ended = self._file, {"epochs": self._epochs, "tolerance": self._tolerance if early else 0.0}
        model = {_FINAL + name: array for name, array in (final or {}).items()}
        seconds = max(by_rank(clock.seconds).values())
        whole = {**self._numbers(epoch, examples, seconds), **ended, **state, **model}
        on_lowest_rank(lambda: all(map(_is_finite, whole.values())) and file.save(whole, force=True))

    def _numbers(self, epoch: int, examples: int, seconds: float) -> State:
        done = after(self.before, Mark(examples, seconds))
        return {"epoch": epoch, "examples": done.examples, "seconds": done.seconds}

    def due_together(self) -> bool:
        """Whether a save is due, the same on all ranks. Collective, where there is a file."""
        return self._file is not None and self._file.due_together()

    def __str__(self) -> str:
        """For the introduction."""
        return f", resumed after epoch {self.epoch:,}" if self.state else ""


def _is_finite(value: Any) -> bool:
    return bool(np.isfinite(value).all())


def check_checkpoint(options: Namespace) -> None:
    """Refuse options that do not go together, and to overwrite a checkpoint. Collective.

    ValueError, on all ranks. With --resume, or started again by `malt run --restarts`, a job goes on with the file, if
    there is one: one and the same command line will do for its first run and for all that follow.
    """

    def check() -> None:
        path = options.checkpoint
        if path is None:
            if options.resume:
                raise ValueError("--resume needs --checkpoint FILE, to go on from")
            return
        if malt.lowest() and not (options.resume or is_restarted()) and os.path.exists(path):
            raise ValueError(f"{path}: the file is there: --resume goes on from it; remove it to start anew")

    malt.together(check)


def is_restarted() -> bool:
    """Whether `malt run --restarts` runs this job in place of one that died. Local, the same on all ranks."""
    return os.environ.get("MALT_RESTART", "0") not in ("", "0")


def fingerprint(*arrays: NDArray[Any]) -> int:
    """CRC-32 of some data: another number for other data. Local."""
    check = 0
    for array in arrays:
        check = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, check)
    return check
