"""Matrix factorization by stochastic gradient descent: ratings of items by users, predicted.

    python -m apps.mf [RATINGS] [--test TEST] ...               alone
    malt run -n 4 -m apps.mf [RATINGS] [--test TEST] ...        on four ranks

Every rank trains on the ratings of its own users, whose rows no other rank needs. One rank at a time holds a block of
items, trains their rows and passes them on. With --mix average ranks exchange means of rows instead.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import malt
from apps import harness
from apps.harness import TRAFFIC, Array, Column, Measured, Measures, Need, Parser, Start
from apps.mf import mix, reading
from apps.mf.ratings import RANK, DealtRatings, UserShares
from apps.mf.snapshots import Snapshots
from malt.models import factors
from malt.models.factors import Model

_COPIES = 4
"""Copies of all rows on a rank while the common model is made."""


class Trainer(harness.Trainer):
    """One rank's users, and the learner of their ratings."""

    def __init__(self, problem: Problem, start: Start) -> None:
        self._ratings, self._shares = problem.ratings, problem.user_shares
        self._epochs, self._done = range(start.epoch, problem.options.epochs), start.epoch
        """The epochs of this run, from 0, and the number of epochs that are done."""
        self._saved = start.state
        self.learner = mix.learner(problem.ratings, start.generator, start.state)
        self._shares.ranks = self.learner.present
        self.vectors = [self.learner.items]
        self._snapshots = Snapshots(self.learner, self._ratings, self._epochs)
        self._model: Model | None = None
        """The final model, after `finish`."""

    def take(self) -> None:
        """Take the users that this rank owns now. New ones are trained for the past epochs, without changing items."""
        self._ratings.deal(self._shares.failed)
        new = self.learner.take()
        self._snapshots = Snapshots(self.learner, self._ratings, self._epochs)
        self.learner.catch_up(new, range(self._epochs.start, self._done))

    def order(self) -> Any:
        return self.learner.order()

    def train(self, epoch: int, order: Any) -> int:
        trained = self.learner.learn(epoch - 1, order)
        self.rows_sent = self.learner.rows_sent
        return trained

    def keep(self, epoch: int) -> None:
        self._done = epoch
        self._snapshots.keep(epoch - 1, self.learner.users, self.learner.items.array)

    def model(self) -> Mapping[str, Array]:
        assert self._model is not None, "there is none before `finish`"
        return {"users": self._model.users, "items": self._model.items}

    def measures_of_all(self) -> list[Measures]:
        while True:
            found, alive = self._snapshots.measures(self.learner.users, self.learner.items.array)
            if alive == self._shares.alive:
                found[-1] |= self.learner.reported()
                return found
            self._deal(alive)  # the new owners of a failed rank's users compute the missing errors
            self.learner.put(**self.model())

    def state(self) -> Mapping[str, Any]:
        if self._model is not None:
            return self.model()
        users, items = self.learner.common(self._deal)
        return {"users": users, "items": items}

    def _deal(self, alive: tuple[int, ...]) -> None:
        if self._shares.changed(alive):
            self.take()

    def finish(self) -> None:
        self.learner.end()
        users, items = self.learner.common(self._deal)
        self.learner.items.close()
        if self._saved and not self._epochs:  # the training is over: a mean of equal rows may differ in the last bit
            users, items = self._saved["users"], self._saved["items"]
        self._model = self._ratings.model(users, items)
        self.learner.put(**self.model())

    def saved(self) -> Mapping[str, Any]:
        return vars(self._model)


class Problem(harness.Problem):
    """The training ratings, the test ratings, and the first factors."""

    trains, same = Trainer, ("l2", "step", "seed")

    def __init__(self, options: Namespace, train: malt.Ratings, test: malt.Ratings | None, start: Model | None) -> None:
        self.options, self.ratings = options, DealtRatings(options, train, test, start)
        options.rank, options.biases = self.ratings.rank, self.ratings.biases  # for the report
        self.rows = len(train.ratings)
        self.user_shares = UserShares(self.ratings)

    def memory(self) -> Need:
        ratings = self.ratings
        users, items = len(ratings.user_counts), len(ratings.item_counts)
        return Need(
            _COPIES * ratings.row_nbytes * (users + items) + mix.nbytes(ratings),
            f"{users:,} users and {items:,} items make a large model of --rank {ratings.rank}",
            "take a smaller --rank or fewer ranks",
        )

    def facts(self) -> dict[str, Any]:
        ratings, train = self.ratings, self.ratings.train
        data = {"ratings": self.rows, "users": train.user_ids.size, "items": train.item_ids.size}
        scale = {"mean rating": ratings.mean, "spread of ratings": ratings.spread}
        check = harness.fingerprint(train.user_ids, train.item_ids)
        return {"rank": ratings.rank, "biases": ratings.biases, **data, **scale, "CRC-32 of ids": check}

    def compile(self) -> None:
        factors.train_kernel(self.ratings.rank)

    def shares(self) -> UserShares:
        return self.user_shares

    def introduction(self, trainer: Trainer) -> str:
        options, ratings, train = self.options, self.ratings, self.ratings.train
        test = f"; {len(ratings.test.ratings):,} test ratings" if ratings.test else ""
        return (
            f"{self.rows:,} ratings of {train.item_ids.size:,} items by {train.user_ids.size:,} users{test}\n"
            f"rank {ratings.rank}, {'with' if ratings.biases else 'no'} biases, l2 {options.l2:g}, first step "
            f"{options.step:g}, {trainer.learner.how}"
        )


class Program(harness.Program):
    """The command line."""

    measures = (Column("train_rmse", "train RMSE", ".4f"), Column("test_rmse", "test RMSE", ".4f"))
    rate = "ratings_per_s"
    traffic = (Column("ratings_per_s", "ratings/s", ",.0f"), Column("rows_sent", "rows sent", ",d"), TRAFFIC[0],
               Column("bytes_dense", "bytes dense", ",d"), *TRAFFIC[1:])  # fmt: skip

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("train", nargs="?", metavar="RATINGS",
            help="lines of user item rating, also .gz .bz2 .xz (default: a generated problem)")  # fmt: skip
        add("--test", metavar="TEST", help="ratings on which to measure the error")
        add("--problem", choices=reading.PROBLEMS, help="without RATINGS: small (default), or like a film site's")
        parser.whole("--rank", metavar="K", text=f"factors per user and item (default: {RANK})")
        parser.real("--l2", 0.05, "weight of the squared factors")
        parser.real("--step", 0.04, "initial step size")
        add("--biases", action="store_true", default=None, help="fit biases of users and items, too (default)")
        add("--no-biases", dest="biases", action="store_false", help="fit only factors and the mean")
        add("--model", metavar="FILE",
            help="start from a model written by --save; without RATINGS: measure it on TEST")  # fmt: skip
        mix.add_options(parser)
        parser.whole("--epochs", default=20, least=0, text="passes over the rows")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [("RATINGS", options.train), ("--test", options.test), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem | Measured:
        mix.settle(options)
        start = malt.together(lambda: reading.start(options))
        if options.train is None and start:
            return reading.measured(options, start)
        return Problem(options, *reading.ratings(options), start)


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
