"""The options --checkpoint, --checkpoint-every and --resume: where a run resumes, what is saved and when."""

from __future__ import annotations

import os
import zlib
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness.agreement import on_lowest_rank, print_once
from apps.harness.marks import Clock, Mark, after
from malt.models import by_rank

State = Mapping[str, Any]

_FINAL: Final = "final_"
"""The prefix of the names of the final model's arrays. Names of the training state have none."""


class Checkpoints:
    """The --checkpoint file of a program, if there is one. The constructor is collective.

    `match`: the options and data that a file must have been written with. `tolerance`: `Problem.tolerance`. ValueError,
    OSError: as malt.Checkpoint.load.
    """

    def __init__(self, options: Namespace, program: str, match: Mapping[str, Any], tolerance: float) -> None:
        self._file: malt.Checkpoint | None = None
        self._epochs: int = options.epochs
        self._tolerance = tolerance
        self.state: dict[str, NDArray[Any]] = {}
        """The training state to resume from. It is empty if the run starts from the beginning."""
        if options.checkpoint is not None:
            self._file = malt.Checkpoint(options.checkpoint, options.checkpoint_every, program=program, match=match)
            if (options.resume or is_restarted()) and not malt.init().is_outside:
                self.load()

    def load(self) -> None:
        """Read the file: the training goes on from its state, and begins where there is none. Collective.

        ValueError, OSError: as malt.Checkpoint.load. PeerLost: a rank has failed with its part of the training state,
        and there is no file.
        """
        file = self._file
        assert file is not None
        common = file.load() or {}
        self.state = {**common, **file.mine}
        if file.ranks not in (0, malt.size()):
            print_once(f"{file.path}: the number of ranks was {file.ranks}, and is {malt.size()}: all start from "
                       "what the lowest of them had")  # fmt: skip
        if not self.state:
            print_once(f"{file.path}: no checkpoint yet: the training starts from the beginning")
        elif self.is_over:
            print_once(f"{file.path}: the training ended after epoch {self.epoch:,}: nothing is trained")

    def begin_as(self, epoch: int, before: Mark) -> None:
        """Have the numbers of the ranks that this one has come back to: what was done before this run. Local."""
        self.state = {} if not epoch else {
            "epoch": np.array(epoch), "examples": np.array(before.examples), "seconds": np.array(before.seconds)
        }  # fmt: skip

    @property
    def is_on(self) -> bool:
        """True if a checkpoint file was asked for."""
        return self._file is not None

    @property
    def epoch(self) -> int:
        """The number of epochs that were trained before this run."""
        return int(self.state["epoch"]) if self.state else 0

    @property
    def is_over(self) -> bool:
        """True if nothing is left to train: all epochs are done, or a tolerance had ended a run of at least as many."""
        if not self.state:
            return False
        ended = "epochs" in self.state and self._tolerance >= float(self.state["tolerance"])
        return self._epochs <= (int(self.state["epochs"]) if ended else self.epoch)

    @property
    def final(self) -> dict[str, NDArray[Any]]:
        """The final model, as it was passed to `conclude`. It is empty if training goes on, or if the file has none."""
        found = self.state if self.is_over else {}
        return {name.removeprefix(_FINAL): array for name, array in found.items() if name.startswith(_FINAL)}

    @property
    def before(self) -> Mark:
        """Examples and seconds of all ranks before this run. Traffic is not known, and counts as 0."""
        if not self.state:
            return Mark()
        return Mark(examples=int(self.state["examples"]), seconds=float(self.state["seconds"]))

    def save(self, epoch: int, examples: int, clock: Clock, state: Callable[[], State], force: bool = False) -> None:
        """Write what state() returns, if a save is due and all of it is finite. Only the lowest rank writes. Local.

        It is Collective where the session has sharded vectors. All ranks then agree whether a save is due.
        `epoch` is the epoch that has ended. The last epoch is saved by `conclude`. `examples` counts those of all ranks
        in this run, and `clock` has its seconds. `force` saves even if no save is due.
        """
        has_part = malt.lowest() or _is_sharded()
        if self._file is not None and has_part and (force or self._file.due()):
            self._write(self._file, {**self._numbers(epoch, examples, clock.seconds), **state()})

    def save_parts(
        self, epoch: int, examples: int, clock: Clock, state: Callable[[], State], own: Callable[[], State]
    ) -> None:
        """Save a checkpoint with a part that each rank alone resumes from: own(). Collective."""
        if self._file is not None and self._file.due_together():
            mine = own()
            is_finite = all(_is_finite(one) for one in mine.values() if isinstance(one, (float, np.ndarray)))
            if all(by_rank(is_finite).values()):
                common = state() if malt.lowest() else {}  # it may change what the rank goes on with
                numbers = self._numbers(epoch, examples, clock.seconds)
                self._file.save({**numbers, **common}, force=True, mine=mine)

    def conclude(
        self, epoch: int, examples: int, clock: Clock, state: State, final: State | None = None, early: bool = False
    ) -> None:  # fmt: skip
        """Write the last checkpoint, on the lowest rank. If that rank fails, the next one writes it. Collective.

        A longer training resumes from `state`. A run that has nothing left to train restores `final`, which is left out
        if the state is the model. `early` says that the tolerance has ended the training. Nothing is written if a
        number is not finite.
        """
        if self._file is None:
            return
        file, ended = self._file, {"epochs": self._epochs, "tolerance": self._tolerance if early else 0.0}
        model = {_FINAL + name: array for name, array in (final or {}).items()}
        seconds = max(by_rank(clock.seconds).values())
        whole = {**self._numbers(epoch, examples, seconds), **ended, **state, **model}
        if _is_sharded():
            self._write(file, whole)
        else:
            on_lowest_rank(lambda: self._write(file, whole))

    @staticmethod
    def _write(file: malt.Checkpoint, state: State) -> None:
        """Write `state` if all of it is finite, on all ranks that have a part of it."""
        is_finite = all(map(_is_finite, state.values()))
        if all(by_rank(is_finite).values()) if _is_sharded() else is_finite:
            file.save(state, force=True)

    def _numbers(self, epoch: int, examples: int, seconds: float) -> State:
        done = after(self.before, Mark(examples, seconds))
        return {"epoch": epoch, "examples": done.examples, "seconds": done.seconds}

    def due_together(self) -> bool:
        """Return whether a save is due, the same on all ranks. Collective if there is a file."""
        return self._file is not None and self._file.due_together()

    def __str__(self) -> str:
        """The part of the introduction that says after which epoch the run resumes."""
        return f", resumed after epoch {self.epoch:,}" if self.state else ""


def _is_sharded() -> bool:
    """Return whether the session has sharded vectors, so that a save is collective. Local, the same on all ranks."""
    return bool(malt.init().sharded)


def _is_finite(value: Any) -> bool:
    """Return whether a value is finite, or this rank's part of a sharded vector."""
    return bool(np.isfinite(getattr(value, "local", value)).all())


def check_checkpoint(options: Namespace) -> None:
    """Check that the options go together, and that no checkpoint is overwritten. Collective.

    A job resumes from the file, if it exists, with --resume or if `malt run --restarts` has restarted it. The same
    command line therefore serves for the first run and for those that follow. ValueError, on all ranks: --resume is
    given without --checkpoint, or the file exists and the job is not to resume.
    """

    def check() -> None:
        path = options.checkpoint
        if path is None:
            if options.resume:
                raise ValueError("--resume needs --checkpoint FILE")
            return
        if malt.lowest() and not (options.resume or is_restarted()) and os.path.exists(path):
            raise ValueError(f"{path}: the file exists: continue from it with --resume, or remove it to start over")

    malt.together(check)


def is_restarted() -> bool:
    """Return whether `malt run --restarts` has restarted this job. Local, the same on all ranks."""
    return os.environ.get("MALT_RESTART", "0") not in ("", "0")


def fingerprint(*arrays: NDArray[Any]) -> int:
    """The CRC-32 of the bytes of `arrays`, to recognise data by. Local."""
    check = 0
    for array in arrays:
        check = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, check)
    return check


def as_often(counts: Collection[int], epochs: int, every: int, at_ends: bool = False) -> bool:
    """Return whether ranks have made the same number of exchanges after `epochs`.

    `counts`: what each rank counts in an epoch. They exchange at multiples of `every`; if `at_ends`, also at the end of
    an epoch, if something was counted since the last exchange.
    """

    def made(count: int) -> int:
        """The exchanges of a rank."""
        ends = sum(count * epoch % every > 0 for epoch in range(1, 1 + epochs)) if at_ends and count else 0
        return count * epochs // every + ends

    return len({made(count) for count in counts}) == 1
