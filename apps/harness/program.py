"""What a program brings: its options and data, its rows and kernel, what it exchanges, its state, its measure.

    class Rows(Problem): ...          what all ranks know alike
    class Learner(Trainer): ...       one rank's part
    class Mine(Program): ...          the command line, and how the data is read

    if __name__ == "__main__":
        main(Mine())

DESIGN.md, "A program on the harness", has it in the order in which it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from apps.harness.agreement import Array
from apps.harness.marks import Mark
from apps.harness.memory import Need
from apps.harness.options import Parser
from apps.harness.report import TRAFFIC, Column, Report
from apps.harness.shares import Shares

Measures = dict[str, float | None]
"""How good a model is, by the keys of the program's columns; None: not known."""
Path = str | PathLike[str]


@dataclass(frozen=True)
class Start:
    """With what a rank begins to train."""

    generator: np.random.Generator
    """Of all that is random on this rank alone."""
    shares: Shares
    """Which rows are whose."""
    epoch: int
    """How many epochs were trained before this run."""
    state: Mapping[str, Any]
    """What `Trainer.state` was then; empty: this run begins."""


class Trainer(ABC):
    """One rank's part: its rows, and its replica of the model. Local, but for what is said to be collective."""

    vectors: Sequence[Any] = ()
    """What carries the model to other ranks: each has `statistics()` and `array`."""
    rows_sent = 0
    """By sparse vectors."""
    gathers_state = False
    """Whether `state` is collective, as no rank has all of it. The ranks then come together after each epoch where
    there is a checkpoint, to learn whether it is due."""
    has_own_loop = False
    """Whether `train_all` takes the place of `order`, `begin_epoch` and `train`, as another's loop makes the epochs."""
    measures_together = False
    """Whether `measures_of_all` takes the place of `measures`, as no rank has all of the model, or of the data."""

    def take(self) -> None:
        """Ranks have failed, and rows are dealt otherwise: train on those of this rank from here on."""
        raise NotImplementedError

    def order(self) -> Any:
        """The order in which the next epoch visits the rows. Drawn, and left, for the epochs that a run goes on
        from."""
        return None

    def begin_epoch(self, place: int) -> None:
        """The epoch that begins is number `place` of this run, from 0. One that comes again is trained with the steps
        that it had before, as if what has followed had not been: it lacked rows."""
        return None

    def train(self, epoch: int, order: Any) -> int:
        """Train epoch number `epoch`, from 1, and exchange on the way; how many examples this rank has trained on."""
        raise NotImplementedError

    def train_all(self, ended: Callable[[int], bool]) -> None:
        """Train all epochs. After each: ended(examples of this rank), which says whether it was the last. The clock
        stands meanwhile."""
        raise NotImplementedError

    def has_converged(self) -> bool:
        """Whether nothing is left to train, whatever --epochs; the same on all ranks. Asked after each epoch."""
        return False

    @abstractmethod
    def model(self) -> Mapping[str, Array]:
        """The arrays of the model as it is now, by name: views. In the end those of the final one, whose bytes, in this
        order, are hashed."""

    def objective(self, model: Mapping[str, Array]) -> float:
        """What --tolerance looks at: less is better."""
        raise NotImplementedError

    def measures(self, model: Mapping[str, Array]) -> Measures:
        """How good a model is: one that `model` has returned, or a copy of it. FloatingPointError: it is not finite."""
        raise NotImplementedError

    def keep(self, epoch: int) -> None:
        """Keep what `measures_of_all` needs of the model at the end of this epoch, from 1. The clock stands."""
        return None

    def measures_of_all(self) -> list[Measures]:
        """How good the model was at the end of each epoch of this run, and, the last, how good the final one is.
        Collective."""
        raise NotImplementedError

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """What another run, on any number of ranks, goes on with: views. Collective if `gathers_state`."""

    @abstractmethod
    def finish(self) -> None:
        """Make the model one and the same on all ranks. Collective."""

    def restore(self, model: Mapping[str, Any]) -> None:
        """Take over the final model of a training that is over: as `model` returned it; as `state` did, if
        `gathers_state`."""
        for name, array in self.model().items():
            array[...] = model[name]

    @abstractmethod
    def save(self, path: str) -> None:
        """Write the final model there, complete or not at all. OSError."""

    def warning(self, report: Report) -> str:
        """What the user should know of the final model, if anything."""
        return ""


class Problem(ABC):
    """What all ranks know alike: the options, the data, what is trained."""

    options: Namespace
    rows: int
    """Examples of an epoch, those of all ranks together."""

    def reported(self) -> dict[str, Any]:
        """The options as the report has them."""
        return vars(self.options)

    @abstractmethod
    def memory(self) -> Need:
        """What training takes of this rank's memory."""

    @abstractmethod
    def match(self) -> dict[str, Any]:
        """What a checkpoint must have been written with: options, sizes and a fingerprint of the data."""

    def compile(self) -> None:
        """Compile the kernels. Called on one rank of each host first, which keeps them on disk for the others."""
        return None

    def shares(self) -> Shares:
        """Which rows are whose: by default as malt.shard deals them."""
        return Shares(self.rows)

    @abstractmethod
    def trainer(self, start: Start) -> Trainer:
        """This rank's part. Collective. ValueError, FloatingPointError: as the user must see it."""

    @abstractmethod
    def introduction(self, trainer: Any) -> str:
        """What is printed before the training: lines about the data, then one about the training, without its end."""


@dataclass(frozen=True)
class Measured:
    """A model that was only to be measured: nothing is trained."""

    model: Sequence[Array]
    measures: Measures


class Program(ABC):
    """The command line of a program, and how its data is read."""

    name: ClassVar[str]
    """As `python -m` knows it."""
    summary: ClassVar[str]
    """One line for --help."""
    measures: ClassVar[Sequence[Column]]
    """How good a model is: the columns of the table between the seconds and the traffic."""
    traffic: ClassVar[Sequence[Column]] = TRAFFIC
    """The last columns of the table."""

    @abstractmethod
    def add_options(self, parser: Parser) -> None:
        """The options, the common ones included."""

    @abstractmethod
    def inputs(self, options: Namespace) -> Iterable[tuple[str, Path | None]]:
        """What is read, under the names of the command line: none of it may be written."""

    @abstractmethod
    def load(self, options: Namespace) -> Problem | Measured:
        """Read the data. Collective. ValueError, OSError: as the user must see it."""

    def rates(self, mark: Mark) -> Measures:
        """More that the report has of an epoch, of its mark over all ranks."""
        return {}
