"""Matrix factorization by stochastic gradient descent: ratings of items by users, predicted.

    python -m apps.mf [RATINGS] [--test TEST] ...               alone
    malt run -n 4 -m apps.mf [RATINGS] [--test TEST] ...        on four ranks

Every rank trains on the ratings of its own users, whose rows nobody else needs. Rows of items that several ranks have
ratings of are exchanged: those that a rank has trained on since the last time go to its peers, who take the mean of
their own and what they got.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import malt
from apps import factormodel, factors
from apps.factormodel import Model
from apps.factors import Numbers, Rows
from apps.harness import (
    Need,
    Parser,
    add_common_options,
    main,
    memory,
    real_number,
    user_errors,
    whole_number,
)
from apps.harness.agreement import common_hash, compile_first, on_lowest_rank, say
from apps.harness.checkpoints import Checkpoints, check_checkpoint, fingerprint
from apps.harness.marks import Clock, Mark, mark, over_ranks
from apps.harness.outputs import check_outputs
from apps.harness.report import TRAFFIC, Column, Report, header
from apps.harness.shares import Losses
from apps.planted import planted
from apps.ratingproblem import RANK, Problem
from apps.snapshots import Snapshots
from malt.world.agreement import exchange, succeed

MEASURES = (Column("train_rmse", "train RMSE", ".4f"), Column("test_rmse", "test RMSE", ".4f"))
COLUMNS = (Column("ratings_per_s", "ratings/s", ",.0f"), Column("rows_sent", "rows sent", ",d"), TRAFFIC[0],
           Column("bytes_dense", "bytes dense", ",d"), *TRAFFIC[1:])  # fmt: skip

_COPIES = 4
"""Of all rows, that a rank has while the common model is made."""
_INPUTS = ("RATINGS", "--test", "--model")
_SAME = ("l2", "step", "seed")
"""Options that a resumed run must have been begun with."""


def parser() -> Parser:
    """The command line."""
    made = Parser(prog="python -m apps.mf", description=__doc__.splitlines()[0])
    add = made.add_argument
    add("train", nargs="?", metavar="RATINGS",
        help="lines of user item rating, also .gz .bz2 .xz (a problem made of the seed, with a test)")  # fmt: skip
    add("--test", metavar="TEST", help="ratings to measure the error on")
    add("--rank", type=whole_number(1), metavar="K", help=f"factors of a user and of an item ({RANK})")
    add("--l2", type=real_number(0), default=0.05, metavar="X", help="weight of the factors' squares (%(default)s)")
    add("--step", type=real_number(0), default=0.04, metavar="X", help="the first step size (%(default)s)")
    add("--biases", action="store_true", default=None, help="of users and items, beside the factors (so)")
    add("--no-biases", dest="biases", action="store_false", help="factors and the mean alone")
    add("--model", metavar="FILE", help="go on from a model that --save wrote; without RATINGS: measure it on TEST")
    add_common_options(made, epochs=20, exchange_every=50_000, graph="all", sync="asp")
    return made


class Run:
    """One rank's part: its users, whose rows are its own, and a replica of the items' rows, a sparse vector."""

    def __init__(self, problem: Problem, checkpoints: Checkpoints) -> None:
        self.problem, self.options, self.checkpoints = problem, problem.options, checkpoints
        self.generator = np.random.default_rng([self.options.seed, 1 + malt.rank()])
        self.kernels = factors.kernels(problem.rank)
        self.alive = tuple(range(malt.size()))
        self.losses = Losses(lambda rank: int(problem.ratings_of_ranks()[rank]), "ratings")
        self.mine = np.empty(0, np.intp)
        self.users = np.empty((0, problem.rank + 1), np.float32)
        self.epochs = range(checkpoints.epoch, self.options.epochs)
        self._take_users()
        first_items = problem.first_items()
        if checkpoints.state:
            first_items[:] = checkpoints.state["items"]
        with user_errors():  # the vector checks --graph and --sync
            self.items = malt.vector(
                first_items, kind="sparse", track=False, graph=self.options.graph, sync=self.options.sync,
                check_finite=True,
                capacity=min(len(problem.item_counts), self.options.exchange_every + int(problem.user_counts.max())),
            )  # fmt: skip
        self.touched = np.zeros(len(problem.item_counts), bool)
        self.clock, self.trained, self.rows_sent = Clock(), 0, 0
        self.marks: list[Mark] = []
        self.model: Model | None = None
        """The final one."""

    def _take_users(self) -> None:
        """The users that are this rank's now: those that it had keep their rows."""
        problem, (had, rows) = self.problem, (self.mine, self.users)
        self.mine = np.flatnonzero(problem.owners == malt.rank())
        self.counts = problem.user_counts[self.mine]
        self.exchanges = self._exchanges()
        self.data = self._shard()
        self.tests = problem.tests(self.mine, malt.rank())
        self.users = problem.first_users(self.mine, self.generator)
        if self.checkpoints.state:
            self.users[:] = self.checkpoints.state["users"][self.mine]
        self.users[np.searchsorted(self.mine, had)] = rows
        self.l2 = tuple(factors.penalties(counts, self.options.l2) for counts in (self.counts, problem.item_counts))
        self.is_shared = problem.is_shared()
        self.kept = Snapshots(problem, self.kernels, self.data, self.tests, self.is_shared, self.epochs)

    def _bury(self, alive: tuple[int, ...]) -> None:
        """The users of those who have died are dealt to the living. Their rows are gone, and begin anew, or as in the
        checkpoint that this run goes on from; they are trained for as many epochs as have been, on items that stand.
        """
        self.losses.bury(set(self.alive) - set(alive), alive)
        self.alive = alive
        self.problem.deal(set(range(malt.size())) - set(alive))
        had = self.mine
        self._take_users()
        self._catch_up(np.flatnonzero(~np.isin(self.mine, had)).astype(np.int32))

    def _catch_up(self, users: Numbers) -> None:
        """Train these users, places in `mine`, as they would have been in the epochs so far, and no items."""
        for epoch in range(self.checkpoints.epoch, self.checkpoints.epoch + len(self.marks)):
            items = self.items.array.copy()
            self._train(self.generator.permutation(users), items, np.zeros(len(items), bool), *self._steps(epoch))
            malt.heartbeat()

    def _steps(self, epoch: int) -> tuple[tuple[Rows, Rows], float]:
        """What is kept of rows at an example, and the step size."""
        step = factors.step_size(self.options.step, epoch, self.options.epochs)
        return (factors.keeps(self.l2[0], step), factors.keeps(self.l2[1], step)), step

    def _train(
        self, users: Numbers, items: Rows, touched: NDArray[np.bool_], kept: tuple[Rows, Rows], step: float
    ) -> None:
        factors.train(
            self.kernels, self.data, users, self.users, items, kept, step, touched, self.problem.biases
        )  # fmt: skip

    def _shard(self) -> factors.Shard:
        train, problem = self.problem.train, self.problem
        mine = problem.owners[train.users] == malt.rank()
        rows = np.searchsorted(self.mine, train.users[mine]).astype(np.int32)
        ratings = problem.scaled(train.ratings[mine])
        return factors.shard(rows, train.items[mine], ratings, len(self.mine), self.generator)

    def _exchanges(self) -> int:
        """How many there are in an epoch: about --exchange-every ratings apart, never so few that a message would hold
        more rows than its slot. So it changes with whose users are this rank's.

        Where ranks meet after epochs, for checkpoints, they all make as many in one: a rank that waits in an exchange
        for one that waits in the meeting would wait long.
        """
        ratings = self.problem.ratings_of_ranks()
        most = ratings.max() if self.checkpoints.is_on else ratings[malt.rank()]
        return -(-int(most) // self.options.exchange_every)

    def _living(self) -> tuple[int, ...]:
        """Who trains in the next epoch. Collective where ranks meet after epochs: there all must know of the same
        deaths, for them to make as many exchanges."""
        transport = malt.init().transport
        return tuple(exchange(transport, None)) if self.checkpoints.is_on and malt.init().survive else malt.alive()

    def train(self) -> None:
        """All epochs. Collective only where there are checkpoints."""
        for _ in range(self.checkpoints.epoch):
            self.generator.permutation(len(self.mine))  # drawn again, for the following to be other ones
        malt.barrier()
        said = time.monotonic()
        for epoch in self.epochs:
            if (living := self._living()) != self.alive:
                self._bury(living)
            self.clock.start()
            steps = self._steps(epoch)
            for order in self._parts():
                self._train(order, self.items.array, self.touched, *steps)
                self.trained += int(self.counts[order].sum())
                self._exchange()
            self.clock.stop()
            self._take_down(epoch)
            self._keep(epoch + 1)
            if time.monotonic() - said > 2:
                said = time.monotonic()
                say(f"... epoch {epoch + 1} of {self.options.epochs} after {self.clock.seconds:.1f} s")

    def _parts(self) -> list[Numbers]:
        """The users in a new order, cut where an exchange is due."""
        order = self.generator.permutation(len(self.mine)).astype(np.int32)
        if not self.exchanges:
            return []
        totals = np.cumsum(self.counts[order])
        whole = int(self.counts.sum())
        cuts = np.searchsorted(totals, whole * np.arange(1, self.exchanges) / self.exchanges)
        return [part for part in np.split(order, cuts) if len(part) or self.checkpoints.is_on]

    def _exchange(self) -> None:
        """Send the rows trained on since the last time, merge those that came: row by row the mean of own and theirs.

        A row that a rank does not train on it does not send, so that it dilutes nobody's.
        """
        self.touched &= self.is_shared
        if malt.size() > 1:
            before = self.items.statistics().sent
            self.items.scatter(rows=self.touched)
            self.items.gather(malt.AVG)
            self.rows_sent += int(np.count_nonzero(self.touched)) * (self.items.statistics().sent - before)
        self.touched[:] = False

    def _take_down(self, epoch: int) -> None:
        self.marks.append(mark(self.trained, self.clock.seconds, [self.items], self.rows_sent))
        self.kept.keep(epoch, self.users, self.items.array)

    def _keep(self, epochs: int) -> None:
        """Write a checkpoint, where one is due: the model of all ranks. Not after the last epoch: `finish` does.
        Collective, where there are checkpoints."""
        if epochs < self.options.epochs and self.checkpoints.due_together():
            users, items = self._common()
            state = {"users": users, "items": items}
            self.checkpoints.save(epochs, self._examples(epochs), self.clock, lambda: state, force=True)

    def _examples(self, epochs: int) -> int:
        return (epochs - self.checkpoints.epoch) * len(self.problem.train.ratings)

    def finish(self) -> Model:
        """One and the same model on all ranks, which are done, and the last checkpoint. Collective.

        FloatingPointError: it is not finite."""
        self.items.close()
        malt.init().transport.barrier("finish")
        users, items = self._ended()
        self.users, self.items.array[:] = users[self.mine], items
        problem = self.problem
        self.model = Model(
            users, items, problem.train.user_ids, problem.train.item_ids,
            problem.mean, problem.spread, problem.low, problem.high, problem.biases,
        )  # fmt: skip
        return self.model

    def _ended(self) -> tuple[Rows, Rows]:
        """Those of the checkpoint, where nothing was left to train. Collective."""
        if self.checkpoints.is_over:
            return self.checkpoints.state["users"], self.checkpoints.state["items"]
        users, items = self._common()
        if self.epochs:
            last = self.options.epochs
            state = {"users": users, "items": items}
            self.checkpoints.conclude(last, self._examples(last), self.clock, state)
        return users, items

    def _common(self) -> tuple[Rows, Rows]:
        """Users, each from the rank that has it, and items: the mean of theirs, by their ratings of each. Collective.

        FloatingPointError: they are not finite.
        """
        transport, problem = malt.init().transport, self.problem
        while True:
            living = tuple(exchange(transport, None))
            if living != self.alive:
                self._bury(living)
            items = self._common_items()
            users = np.zeros((len(problem.owners), problem.rank + 1), np.float32)
            for rank, theirs in enumerate(transport.allgather(self.users.tobytes())):
                if theirs:
                    users[problem.owners == rank] = np.frombuffer(theirs, np.float32).reshape(-1, problem.rank + 1)
            if tuple(exchange(transport, None)) == living:  # else the users of one may be missing
                return users, items

    def _common_items(self) -> Rows:
        problem = self.problem
        mine = np.bincount(self.data.items, minlength=len(problem.item_counts))
        share = (mine / problem.item_counts).astype(np.float32)[:, np.newaxis]
        sums = np.concatenate((self.items.array * share, share), axis=1)
        malt.allreduce(sums)
        items: Rows = np.divide(sums[:, :-1], sums[:, -1:], out=self.items.array.copy(), where=sums[:, -1:] > 0)
        if not np.isfinite(items).all():
            raise FloatingPointError(f"the factors are not finite: the step size, {self.options.step:g}, is too large")
        return items

    def measures(self) -> list[dict[str, float | None]]:
        """How good all ranks were at the end of each epoch, and are now, after `finish`. Collective."""
        while True:
            found, living = self.kept.measures(self.users, self.items.array)
            if living == self.alive:
                return found
            self._bury(living)  # the errors of its users' ratings are missing: those who have them now find them
            assert self.model is not None
            self.users[:] = self.model.users[self.mine]


def run(arguments: Sequence[str]) -> None:
    """The program, on every rank. Collective. BadInput, FloatingPointError: as the user must see it."""
    options = parser().parse_args(arguments)
    with user_errors():
        malt.graph(options.graph, malt.size())
        check_outputs(options, zip(_INPUTS, (options.train, options.test, options.model), strict=True))
        check_checkpoint(options)
        start = succeed(malt.init().transport, lambda: _start(options))
        if options.train is None and start:
            return _measure(options, start)
        train, test = _load(options)
        problem = Problem(options, train, test, start)
        _check_memory(problem)
        checkpoints = Checkpoints(options, "apps.mf", _match(problem))
    compile_first(lambda: factors.kernels(problem.rank))
    told = header("apps.mf", {**vars(options), "rank": problem.rank, "biases": problem.biases})
    part = Run(problem, checkpoints)
    say(_introduction(told, problem, checkpoints))
    part.train()
    model = part.finish()
    marks = over_ranks(part.marks, checkpoints.before)
    measures = part.measures()
    digest = common_hash([model.users, model.items])
    lost, resumed = part.losses.told, checkpoints.epoch
    report = Report(told, MEASURES, COLUMNS, resumed_from=resumed, before=checkpoints.before, lost_ranks=lost)
    on_lowest_rank(lambda: _tell(options, report, marks, measures, digest, model))


def _start(options: Namespace) -> Model | None:
    if options.rank and options.rank > factors.MAX_RANK:
        raise ValueError(f"--rank must be at most {factors.MAX_RANK}, got {options.rank}")
    if options.model is None:
        return None
    model = factormodel.load(options.model)
    if options.rank not in (None, model.rank):
        raise ValueError(f"{options.model} has rank {model.rank}, so --rank {options.rank} does not go with it")
    if options.train is None and options.test is None:
        raise ValueError("--model without RATINGS to go on with needs --test, to measure it on")
    if options.train is None and options.checkpoint:
        raise ValueError("--checkpoint is for training: --model without RATINGS is measured")
    return model


def _load(options: Namespace) -> tuple[malt.Ratings, malt.Ratings | None]:
    if options.train is None:
        train, test = planted(options.seed)
        return train, malt.open_ratings(options.test) if options.test else test
    return malt.open_ratings(options.train), malt.open_ratings(options.test) if options.test else None


def _check_memory(problem: Problem) -> None:
    """Whether rows of so many users and items fit. Collective."""
    row_nbytes = np.dtype(np.float32).itemsize * (problem.rank + 1)
    users, items, options = problem.train.user_ids.size, problem.train.item_ids.size, problem.options
    sent = row_nbytes * min(items, options.exchange_every + int(problem.user_counts.max()))
    memory.check(
        Need(
            _COPIES * row_nbytes * (users + items) + memory.queues_nbytes(options.graph, sent),
            f"{users:,} users and {items:,} items make a large model of --rank {problem.rank}",
            "take a smaller --rank or fewer ranks",
        )
    )


def _measure(options: Namespace, model: Model) -> None:
    """How good a saved model is, without training. Collective."""
    test = malt.open_ratings(options.test)
    compile_first(lambda: factors.kernels(model.rank))
    predicted = model.predict(test.user_ids[test.users], test.item_ids[test.items])
    digest = common_hash([model.users, model.items])
    report = Report(header("apps.mf", vars(options)), MEASURES)
    rmse = float(np.sqrt(np.mean(np.square(predicted - test.ratings))))
    report.final = {"train_rmse": None, "test_rmse": rmse, "model_sha256": digest}

    def tell() -> None:
        if options.json:
            report.write(options.json)
        print(report.last_line(), flush=True)

    on_lowest_rank(tell)


def _match(problem: Problem) -> dict[str, Any]:
    """What a checkpoint must have been written with."""
    options, train = problem.options, problem.train
    same = {"rank": problem.rank, "biases": problem.biases, **{name: getattr(options, name) for name in _SAME}}
    data = {"ratings": len(train.ratings), "users": train.user_ids.size, "items": train.item_ids.size}
    scale = {"mean rating": problem.mean, "spread of ratings": problem.spread}
    return {**same, **data, **scale, "CRC-32 of ids": fingerprint(train.user_ids, train.item_ids)}


def _introduction(told: dict[str, Any], problem: Problem, checkpoints: Checkpoints) -> str:
    options, train = problem.options, problem.train
    return (
        f"{told['program']} {told['version']}: {told['mpi']}, {told['ranks']} ranks, graph {options.graph}, "
        f"sync {options.sync}, seed {options.seed}\n"
        f"{len(train.ratings):,} ratings of {train.item_ids.size:,} items by {train.user_ids.size:,} users"
        + (f"; {len(problem.test.ratings):,} test ratings\n" if problem.test else "\n")
        + f"rank {problem.rank}, {'with' if problem.biases else 'no'} biases, l2 {options.l2:g}, first step "
        f"{options.step:g}, rows of items exchanged every {options.exchange_every:,} ratings, {options.epochs} epochs"
        f"{checkpoints}\n"
    )


def _tell(
    options: Namespace, report: Report, marks: Sequence[Mark], measures: list[dict[str, float | None]], digest: str,
    model: Model,
) -> None:  # fmt: skip
    """Print what was measured, and write the files that were asked for."""
    for epoch, found in zip(marks, measures, strict=False):  # one measure more: that of the final model
        report.add_epoch(epoch, **found, ratings_per_s=epoch.examples / epoch.seconds if epoch.seconds else None)
    report.conclude(marks, digest, **measures[-1])
    print(report.table())
    if options.save:
        model.save(options.save)
    if options.json:
        report.write(options.json)
    print(report.last_line(), flush=True)


if __name__ == "__main__":
    main("apps.mf", run)
