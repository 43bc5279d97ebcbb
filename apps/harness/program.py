"""The classes that a program brings: `Program` its command line, `Problem` its data, `Trainer` one rank's training.

    class Rows(Problem): ...          what all ranks know alike
    class Learner(Trainer): ...       one rank's part
    class Mine(Program): ...          the command line, and how the data is read

    run = partial(harness.run, Mine())

The harness calls, in this order:

    Program   add_options, inputs, load (returns the Problem)
    Problem   memory, facts, shares, compile, trains (makes the Trainer), introduction
    Trainer   in each epoch: take where rows are dealt anew, order, train; then, with the clock stopped, model or keep,
              state where a checkpoint is due, objective, has_converged
    Trainer   finish, or restore where the checkpoint is that of a training that is over; measures, saved, conclusion,
              warning
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import malt
from apps.harness.agreement import Array, copied, keeps_snapshots
from apps.harness.memory import Need
from apps.harness.options import Parser
from apps.harness.outputs import TRAFFIC, Column, Report
from apps.harness.shares import Shares
from malt.models import of_lowest

if TYPE_CHECKING:
    from apps.harness.training import Training

Measures = dict[str, float | None]
"""How good a model is, by the keys of the program's columns. None stands for what is not known."""
Path = str | PathLike[str]


@dataclass(frozen=True)
class Start:
    """The state from which a rank begins to train."""

    generator: np.random.Generator
    """The source of all that is random on this rank alone."""
    shares: Shares
    """Which rows each rank has."""
    epoch: int
    """The number of epochs that were trained before this run."""
    state: Mapping[str, Any]
    """What `Trainer.state` returned then. It is empty if training starts from the beginning."""


class Trainer(ABC):
    """One rank's part: its rows, and what it has of the model. Methods are local unless they say Collective.

    Ranks come together in each epoch (`Together`), or have parts of the model (`Parts`): `state` and `measures_of_all`
    are collective. Where each has a model of its own it is a `Replicas`.
    """

    vectors: Sequence[Any] = ()
    """The vectors that carry the model to other ranks. Each has `statistics()` and `array`."""
    rows_sent = 0
    """The number of rows that sparse vectors have sent."""
    loss: float | None = None
    """What the last epoch has made of the loss, or of a part of it, where training finds it out anyway. It is shown."""

    def take(self) -> None:
        """Take the rows that this rank has from here on. Called after ranks have failed and rows were dealt anew.

        Nothing where the rows are not this rank's own: all ranks know all, or `rebuild` makes them anew.
        """
        return None

    def run(self, training: Training) -> None:
        """Train all epochs. A library that has the loop takes the place of this: `Training.ends` follows each epoch."""
        training.train_epochs()

    def order(self) -> Any:
        """The order in which the next epoch visits the rows.

        A run that resumes draws the orders of the earlier epochs too, and drops them.
        """
        return None

    def train(self, epoch: int, order: Any) -> int:
        """Train epoch number `epoch`, from 1, with its exchanges. Returns the number of examples of this rank.

        An epoch that lacked the rows of a failed rank comes again. It is then trained with the step sizes that it had
        the first time.
        """
        raise NotImplementedError

    def has_converged(self) -> bool:
        """Return whether training ends before --epochs; the same on all ranks. Called after each epoch. Collective."""
        return False

    @abstractmethod
    def model(self) -> Mapping[str, Array]:
        """The arrays of the current model, by name: views. After `finish` they are those of the final model.

        The hash of the final model is that of their bytes, in this order.
        """

    def keep(self, epoch: int) -> None:
        """Keep what the measures at the end of this epoch, from 1, need. The clock is stopped. Collective."""
        return None

    def measured(self, epochs: range) -> Callable[[], list[Measures]]:
        """Return a function that returns the measures of these epochs and of the final model. Collective.

        The rank that reports calls it.
        """
        found = self.measures_of_all()
        return lambda: found

    def measures_of_all(self) -> list[Measures]:
        """Return the measures of the model at the end of each epoch of this run, and of the final model. Collective."""
        raise NotImplementedError

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """The arrays and sharded vectors that a run on any number of ranks can resume from: views. Collective."""

    @abstractmethod
    def finish(self) -> None:
        """Make the model the same on all ranks, bit by bit. Collective."""

    def go_on_from(self, state: Mapping[str, Any], epochs: int) -> None:
        """Go on from the `state` of a rank that has trained `epochs` epochs of this run. Local. Copies.

        Called on a rank that has come back, before its first epoch. Its vectors hold what those of that rank held.
        """
        raise NotImplementedError

    @abstractmethod
    def saved(self) -> Mapping[str, Any]:
        """Return the arrays of the file of the final model, by name. One-sided."""

    def draw(self, path: str) -> None:
        """Write a picture of the final model to `path`, where the program has --picture. OSError: as files.write."""
        raise NotImplementedError

    def conclusion(self) -> str:
        """The text printed under the table, or an empty string."""
        return ""

    def warning(self, report: Report) -> str:
        """A warning about the final model, or an empty string."""
        return ""


class Together(Trainer):
    """One rank's part where all ranks measure the model at the end of each epoch."""

    def __init__(self) -> None:
        self._kept: list[Measures] = []
        """The measures at the ends of epochs."""

    @abstractmethod
    def measures(self) -> Measures:
        """Return how good the model is now. Collective."""

    def keep(self, epoch: int) -> None:
        self._kept.append(self.measures())

    def measures_of_all(self) -> list[Measures]:
        return [*self._kept, self.measures()]


class Parts(Trainer):
    """One rank's part where no rank has all of the model: live ranks make anew what fails with a rank."""

    @abstractmethod
    def rebuild(self) -> str:
        """Make anew what has failed with ranks; return what began anew, for a message, or an empty string. Collective.

        It is called where there is no checkpoint. All sharded vectors are closed, and rows are dealt anew. PeerLost:
        another rank has failed. Nothing that this rank has may be lost then: it is called again.
        """

    def finish(self) -> None:
        malt.barrier()


class Replicas(Trainer):
    """One rank's part where each rank has a model of its own, and none need come together before `finish`.

    `state`, `keep` and `measures` are local. Ranks that have failed can come back. What an epoch has made is a copy of
    the model: the lowest live rank measures the copies after the training, while no clock runs.
    """

    tolerance = 0.0
    """The training ends when an epoch improves the lowest rank's objective by less than this fraction. 0: never."""

    def __init__(self) -> None:
        self._kept: dict[int, Mapping[str, Array]] = {}
        """The model at the end of each epoch, if this rank may be the one that measures."""

    def keep(self, epoch: int) -> None:
        if keeps_snapshots():  # an epoch that comes again drops those after it
            self._kept = {one: model for one, model in self._kept.items() if one < epoch}
            self._kept[epoch] = copied(self.model())

    def measured(self, epochs: range) -> Callable[[], list[Measures]]:
        def found() -> list[Measures]:
            """Those of an epoch are empty where this rank came later."""
            return [self._measures(model) for model in (*map(self._kept.get, epochs), self.model())]

        return found

    def _measures(self, model: Mapping[str, Array] | None) -> Measures:
        malt.heartbeat()  # the other ranks wait: this rank is alive
        return {} if model is None else self.measures(model)

    @abstractmethod
    def measures(self, model: Mapping[str, Array]) -> Measures:
        """Return the measures of a model that `model` returned, or of a copy. FloatingPointError: one is not finite."""

    def objective(self, model: Mapping[str, Array]) -> float:
        """The number whose improvement `tolerance` compares: less is better."""
        raise NotImplementedError

    def has_converged(self) -> bool:
        return bool(self.tolerance) and of_lowest(self._improves_too_little())

    def _improves_too_little(self) -> bool:
        if len(self._kept) < 2:
            return False
        before, now = (self.objective(self._kept[epoch]) for epoch in sorted(self._kept)[-2:])
        malt.report(loss=now)
        # A NaN ends the training too: no later epoch would be better.
        return not before - now >= self.tolerance * abs(before)

    def own(self) -> Mapping[str, Any]:
        """Return what only this rank can resume from, beside `state`: arrays and numbers. Called if `is_in_step`.

        On the same number of ranks `Start.state` has these, too, instead of those of the lowest rank.
        """
        raise NotImplementedError

    def is_in_step(self, epoch: int) -> bool:
        """Return whether all ranks have made as many exchanges by the end of `epoch`, the same on all ranks.

        A checkpoint then has a part by rank, from which the training goes on bit by bit.
        """
        return False

    def restore(self, model: Mapping[str, Any]) -> None:
        """Take over the final model of a training that had ended, as `model` returned it."""
        for name, array in self.model().items():
            array[...] = model[name]


class Problem(ABC):
    """The problem, the same on all ranks: the options, the data, what is trained."""

    options: Namespace
    """Their values are those of the report."""
    rows: int
    """The number of examples of an epoch, over all ranks."""
    trains: type[Any] = Trainer
    """The class of its trainers. A rank's is made of the problem and a `Start`, with all ranks together.

    ValueError, FloatingPointError: the message is shown to the user.
    """
    deals: ClassVar[type[Shares]] = Shares
    """How its rows are dealt, by default as malt.shard does."""
    same: Sequence[str] = ()
    """The options that a checkpoint must have been written with to fit."""
    variant = ""
    """What stands after the program's name in checkpoints that fit only some of its trainings: an option."""

    @property
    def tolerance(self) -> float:
        """The number at which `has_converged` ends training; 0: never. A resumed run continues if it is less."""
        return 0.0

    @abstractmethod
    def memory(self) -> Need:
        """The memory that training takes on this rank. Local."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The sizes and the fingerprint of the data that a checkpoint must have been written with to fit."""

    def match(self) -> dict[str, Any]:
        """The options and facts that a checkpoint must have been written with to fit."""
        return {**{name: getattr(self.options, name) for name in self.same}, **self.facts()}

    def compile(self) -> None:
        """Compile the kernels. Called on one rank of each host first, which caches them on disk for the others."""
        return None

    def shares(self) -> Shares:
        """Return which rows each rank has."""
        return self.deals(self.rows)

    @abstractmethod
    def introduction(self, trainer: Any) -> str:
        """The text printed before training: lines about the data, then the beginning of one about the training."""


@dataclass(frozen=True)
class Measured:
    """A saved model and its measures, where nothing is to be trained."""

    model: Sequence[Array]
    measures: Measures


class Program(ABC):
    """The command line of a program, and how its data is read."""

    name: ClassVar[str]
    """The name for `python -m`: the package of the module that has the class."""
    summary: ClassVar[str]
    """The one line of description in --help: the first one of the docstring of that module."""
    measures: ClassVar[Sequence[Column]]
    """The columns that say how good a model is. They stand between the seconds and the traffic."""
    traffic: ClassVar[Sequence[Column]] = TRAFFIC
    """The columns of the traffic, the last of the table."""
    rate: ClassVar[str | None] = None
    """The key of the column for examples a second."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.rpartition(".")[0]
            cls.summary = str(sys.modules[cls.__module__].__doc__).splitlines()[0]

    @abstractmethod
    def add_options(self, parser: Parser) -> None:
        """Add the options of the program. The harness adds the common ones."""

    @abstractmethod
    def inputs(self, options: Namespace) -> Iterable[tuple[str, Path | None]]:
        """The files that are read, with their names on the command line. None of them may be written to."""

    @abstractmethod
    def load(self, options: Namespace) -> Problem | Measured:
        """Read the data. Collective. ValueError, OSError: the message is shown to the user."""
