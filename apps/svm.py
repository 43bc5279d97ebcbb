"""A linear classifier by stochastic gradient descent: support vector machines, logistic regression.

    python -m apps.svm [TRAIN] [--test TEST] ...               alone
    malt run -n 4 -m apps.svm [TRAIN] [--test TEST] ...        on four ranks

Every rank trains on its own rows, one example at a time, and exchanges its model with its peers every so many.
"""

from __future__ import annotations

import math
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps import linear, modelmemory
from apps.checkpoints import Checkpoints, check_checkpoint, fingerprint
from apps.linear import Order, Params, Problem
from apps.outputs import check_outputs
from apps.program import (
    Parser,
    add_common_options,
    common_hash,
    compile_first,
    header,
    keeps_snapshots,
    main,
    on_lowest_rank,
    positive_number,
    real_number,
    save_npz,
    say,
    user_errors,
)  # fmt: skip
from apps.report import Clock, Column, Mark, Report, mark, over_ranks
from apps.shares import Shares
from apps.trainers import DEPTH, trainer
from dstorm import Statistics
from malt.world.agreement import exchange

EMBEDDED = Path(__file__).parent / "data" / "a9a"
AVERAGES = ("model", "delta", "gradient", "none")
_COPIES = 5
"""Of the model, that a rank has in training: what it trains, the mean of those so far, what was exchanged, one to merge
with, one to keep."""
MEASURES = (Column("objective", "objective", ".4f"), Column("test_accuracy", "test accuracy", ".4f"))


def parser() -> Parser:
    """The command line."""
    made = Parser(prog="python -m apps.svm", description=__doc__.splitlines()[0])
    add = made.add_argument
    add("train", nargs="?", metavar="TRAIN", help="svmlight text, also .gz .bz2 .xz (the embedded census data a9a)")
    add("--test", metavar="TEST", help="rows to measure the accuracy on")
    add("--loss", choices=sorted(linear.LOSSES), default="hinge", help="(%(default)s)")
    add("--l2", type=real_number(0), default=1e-4, metavar="X", help="weight of |w|^2 / 2 (%(default)s)")
    add("--average", choices=AVERAGES, default="model", help="what ranks exchange (%(default)s)")
    add("--vector", choices=("dense", "sparse"), default="dense",
        help="send all weights, or those of features that were in the rows (%(default)s)")  # fmt: skip
    add("--step", type=positive_number, metavar="X", help="the first step size (chosen on a sample)")
    add("--no-intercept", dest="intercept", action="store_false", help="a plane through the origin")
    add("--tolerance", type=real_number(0), default=0.0, metavar="X",
        help="stop when an epoch improves the objective by less than this part of it (0: never)")  # fmt: skip
    add_common_options(made, epochs=10, exchange_every=1000, graph="all", sync="asp")
    return made


class Run:
    """One rank's part of a training run: what `mark` and the report need of it."""

    def __init__(
        self, options: Namespace, problem: Problem, train: malt.Dataset, test: malt.Dataset | None,
        checkpoints: Checkpoints,
    ) -> None:  # fmt: skip
        self.options, self.problem = options, problem
        self.checkpoints = checkpoints
        self.n_features = n_features(train, test)
        self.everything = linear.examples(train.X, train.y)
        self.test = None if test is None else linear.examples(test.X, test.y)
        # Dealt by a permutation: a file that is sorted by label must not give a rank one label only.
        dealt = np.random.default_rng(options.seed).permutation(len(train.y))
        self._train, self._dealt = train, dealt
        self.shares = Shares(len(train.y))
        self.mine = linear.examples(train.X, train.y, malt.shard(dealt))
        self.most_rows = -(-len(train.y) // malt.size())
        state = checkpoints.state
        if state:
            self.eta0 = float(state["first_step"])
        else:
            with user_errors():
                self.eta0 = self._first_step(train, dealt) if options.step is None else options.step
        with user_errors():  # the vector checks --graph and --sync
            self.trainer = trainer(problem, self.mine, self.n_features, self.eta0, options, state)
        self.clock = Clock()
        self.epoch, self.stopped = checkpoints.epoch, False
        """The last that was trained, and whether --tolerance has then ended the training."""
        self.trained, self.before = 0, int(state.get("trained", 0))
        """Examples of this run, and of the runs that it goes on from: those that one rank has trained on."""
        self.marks: list[Mark] = []
        self.resumed = [self.trainer.model.copy()] if state else []
        """The model that it goes on from."""
        self.snapshots: list[Params] = []

    def _first_step(self, train: malt.Dataset, dealt: Order) -> float:
        """The same on all ranks: each tries some steps, on the same rows. Collective."""
        ranks = min(malt.size(), linear.MAX_TRIAL_RANKS)
        sample = linear.examples(train.X, train.y, dealt[: ranks * linear.STEP_SAMPLE])
        mine, transport = slice(malt.rank(), None, malt.size()), malt.init().transport
        return linear.first_step(
            self.problem, sample, self.n_features, ranks, mine, lambda costs: exchange(transport, costs)
        )

    def train(self) -> None:
        """All epochs, or as many as --tolerance allows. Collective only where that is set."""
        if self.checkpoints.is_over:
            return
        generator = np.random.default_rng([self.options.seed, 1 + malt.rank()])
        for _ in range(self.checkpoints.epoch):
            linear.visiting_order(len(self.mine.labels), generator)  # drawn again, for the following to be other ones
        malt.barrier()
        said = time.monotonic()
        for epoch in self.shares.epochs(1 + self.checkpoints.epoch, self.options.epochs, self.options.sync):
            if self.shares.changed():
                self.mine = linear.examples(self._train.X, self._train.y, malt.shard(self._dealt))
                self.trainer.take(self.mine)
            self.trainer.begin_epoch(epoch - 1 - self.checkpoints.epoch)
            self.clock.start()
            for order, due in self._parts(linear.visiting_order(len(self.mine.labels), generator)):
                self.trainer.learn(order, due)
                self.trained += len(order)
            self.clock.stop()
            self._take_down(epoch - 1 - self.checkpoints.epoch)
            if time.monotonic() - said > 2:
                said = time.monotonic()
                say(f"... epoch {epoch} of {self.options.epochs} after {self.clock.seconds:.1f} s")
            self.epoch, self.stopped = epoch, bool(self.options.tolerance) and self._stands_still()
            if self.stopped:
                break
            self._keep()

    def _parts(self, order: Order) -> Iterator[tuple[Order, bool]]:
        """The epoch's examples up to each exchange, and whether it is due then.

        Exchanges fall every so many examples, whatever the epochs. Where all ranks meet after each epoch (--tolerance)
        they all make as many in it: a rank that waits in an exchange for one that waits in the meeting would wait long.
        """
        every = self.options.exchange_every
        if self.options.tolerance:
            exchanges = -(-self.most_rows // every)
            yield from ((part, True) for part in np.array_split(order, exchanges))
            return
        first = every - (self.before + self.trained) % every
        ends = [*range(first, len(order) + 1, every)]
        yield from ((part, True) for part in np.split(order, ends)[: len(ends)])
        if (rest := order[ends[-1] if ends else 0 :]).size:
            yield rest, False

    def _take_down(self, place: int) -> None:
        """The end of epoch number `place` of this run, from 0. One that comes again takes its own place, and those that
        followed it are to come again too."""
        vectors = self.trainer.vectors
        traffic: list[Statistics] = [vector.statistics() for vector in vectors]
        nbytes = [vector.array.nbytes for vector in vectors]
        self.marks[place:] = [mark(self.trained, self.clock.seconds, traffic, nbytes)]
        if keeps_snapshots():
            self.snapshots[place:] = [self.trainer.model.copy()]

    def _keep(self) -> None:
        """Write a checkpoint, where one is due; not after the last epoch, whose model is not there yet."""
        # Where there are more ranks than rows, this one may have none, and nothing to tell.
        if self.trained and self.epoch < self.options.epochs:
            self.checkpoints.save(self.epoch, self._examples(), self.clock, self._state)

    def _examples(self) -> int:
        return (self.epoch - self.checkpoints.epoch) * len(self.everything.labels)

    def _state(self) -> dict[str, Any]:
        return {"first_step": self.eta0, **self.trainer.state()}

    def finish(self) -> None:
        """Make the model one and the same on all ranks, and write the last checkpoint. Collective."""
        is_kept = self.checkpoints.is_on and keeps_snapshots() and self.trained
        state = {name: np.copy(value) for name, value in self._state().items()} if is_kept else {}
        self.trainer.finish()
        model = self.trainer.model
        if self.checkpoints.final:
            model[:] = self.checkpoints.final["model"]
        elif self.marks:
            self.checkpoints.conclude(
                self.epoch, self._examples(), self.clock, state or self._state(), {"model": model}, self.stopped
            )

    def _stands_still(self) -> bool:
        """Whether rank 0's last epoch improved its objective by less than the tolerance. Collective."""
        verdict = np.zeros(1)
        models = [*self.resumed, *self.snapshots]
        if keeps_snapshots() and len(models) > 1:
            before, now = (self.objective(model) for model in models[-2:])
            # Also where one is not a number, and no epoch will be better.
            verdict[0] = not before - now >= self.options.tolerance * abs(before)
        malt.init().transport.broadcast(verdict)
        return bool(verdict[0])

    def objective(self, model: Params) -> float:
        """Over all training rows."""
        return linear.objective(self.problem, self.everything, model)

    def measures(self, model: Params) -> dict[str, float | None]:
        """How good a model is. Others may wait for what is found here: each is told that this rank is at it."""
        malt.heartbeat()
        accuracy = None if self.test is None else linear.accuracy(self.problem, self.test, model)
        objective = self.objective(model)
        if not math.isfinite(objective):
            raise FloatingPointError(
                f"the objective is not finite: the step size, {self.eta0:.3g} at first, is too large"
            )
        return {"objective": objective, "test_accuracy": accuracy}


def run(arguments: Sequence[str]) -> None:
    """The program, on every rank. Collective. BadInput, FloatingPointError: as the user must see it."""
    options = parser().parse_args(arguments)
    with user_errors():
        problem = Problem(options.loss, options.l2, options.intercept)
        malt.graph(options.graph, malt.size())
        check_outputs(options, zip(("TRAIN", "--test"), _paths(options), strict=True))
        check_checkpoint(options)
        train, test = _load(options)
        _check_memory(options, train, test)
        checkpoints = Checkpoints(options, "apps.svm", _match(options, train, test))
    compile_first(linear.compile_kernels)
    part = Run(options, problem, train, test, checkpoints)
    told = header("apps.svm", vars(options))
    say(_introduction(told, part, train))
    part.train()
    part.finish()
    marks = over_ranks(malt.init().transport, part.marks, checkpoints.before)
    digest = common_hash([part.trainer.model])
    lost, resumed = part.shares.losses.told, checkpoints.epoch
    report = Report(told, MEASURES, resumed_from=resumed, before=checkpoints.before, lost_ranks=lost)
    on_lowest_rank(lambda: _tell(part, report, marks, digest, train))


def _paths(options: Namespace) -> tuple[str | Path, str | Path | None]:
    """Of the training rows and the test rows."""
    if options.train is None:
        return EMBEDDED / "train.svm.xz", options.test or EMBEDDED / "test.svm.xz"
    return options.train, options.test


def _load(options: Namespace) -> tuple[malt.Dataset, malt.Dataset | None]:
    """Training rows, and test rows read as the same features and labels."""
    train_path, test_path = _paths(options)
    train = malt.open_svmlight(train_path)
    if train.labels == "raw":
        raise ValueError(f"{train_path}: {_several(np.unique(train.y))}: there must be two: make one class of some and "
                         "the other of the rest")  # fmt: skip
    if test_path is None:
        return train, None
    return train, malt.open_svmlight(test_path, zero_based=train.zero_based, labels=train.labels)


def _several(labels: Params) -> str:
    shown = [f"{label:.9g}" for label in labels[:3]]
    return f"{len(labels)} different labels ({', '.join(shown)}{', ...' if len(labels) > len(shown) else ''})"


def _check_memory(options: Namespace, train: malt.Dataset, test: malt.Dataset | None) -> None:
    """Whether models of so many features fit: one stray index makes a wide one. Collective."""
    path, widest = _paths(options)[0], train
    if test is not None and test.X.shape[1] > train.X.shape[1]:
        path, widest = str(_paths(options)[1]), test
    width = widest.X.shape[1]
    nbytes = np.dtype(np.float32).itemsize * (width + 1)
    depth = {"depth": DEPTH} if options.vector == "sparse" else {}
    queues = 0 if options.average == "none" else modelmemory.queues_nbytes(options.graph, nbytes, **depth)
    copies = _COPIES + modelmemory.snapshots(options.epochs, options.tolerance)
    modelmemory.check(
        copies * nbytes + queues,
        f"{path}:{widest.largest_line}: feature {width - widest.zero_based:,} makes a wide model",
        "correct the line, or take fewer ranks or epochs",
    )


def n_features(train: malt.Dataset, test: malt.Dataset | None) -> int:
    """Of all rows."""
    return max(train.X.shape[1], 0 if test is None else test.X.shape[1])


def _match(options: Namespace, train: malt.Dataset, test: malt.Dataset | None) -> dict[str, Any]:
    """What a checkpoint must have been written with."""
    same = {name: getattr(options, name) for name in ("loss", "l2", "intercept", "average", "step", "seed")}
    data = {"rows": len(train.y), "non-zeros": train.X.nnz, "features": n_features(train, test)}
    return {**same, **data, "labels": list(train.labels), "CRC-32 of labels": fingerprint(train.y)}


def _introduction(told: dict[str, Any], part: Run, train: malt.Dataset) -> str:
    options = part.options
    return (
        f"{told['program']} {told['version']}: {told['mpi']}, {told['ranks']} ranks, graph {options.graph}, "
        f"sync {options.sync}, seed {options.seed}\n"
        f"{len(part.everything.labels):,} rows, {train.X.shape[1]:,} features, {train.X.nnz:,} non-zeros"
        + (f"; {len(part.test.labels):,} test rows\n" if part.test else "\n")
        + f"{options.loss}, l2 {options.l2:g}, {'with' if options.intercept else 'no'} intercept, "
        f"first step {part.eta0:g}, {options.average} averaging every {options.exchange_every:,} examples, "
        f"{options.vector} vectors, {options.epochs} epochs{part.checkpoints}\n"
    )


def _tell(part: Run, report: Report, marks: Sequence[Mark], digest: str, train: malt.Dataset) -> None:
    """Evaluate what was kept, print it, and write the files that were asked for."""
    for epoch, model in zip(marks, part.snapshots, strict=True):
        report.add_epoch(epoch, **part.measures(model))
    report.conclude(marks, digest, **part.measures(part.trainer.model))
    print(report.table())
    if report.final["objective"] > part.objective(np.zeros_like(part.trainer.model)):
        print(f"warning: the model is worse than one of zeros: try a --step below {part.eta0:.3g}", file=sys.stderr)
    if part.options.save:
        _save(part.options.save, part, train)
    if part.options.json:
        report.write(part.options.json)
    print(report.last_line(), flush=True)


def _save(path: str, part: Run, train: malt.Dataset) -> None:
    """The model as .npz, complete or not at all: weights of the features in the file's order, and the intercept."""
    save_npz(
        path, format=1, program="apps.svm", loss=part.problem.loss, l2=part.problem.l2,
        weights=part.trainer.model[:-1], intercept=part.trainer.model[-1],
        labels=np.array(train.labels), zero_based=train.zero_based,
    )  # fmt: skip


if __name__ == "__main__":
    main("apps.svm", run)
