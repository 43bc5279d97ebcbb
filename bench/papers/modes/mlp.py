"""A network of dense layers as apps.mlp trains it: a vector a layer, which travels while the next one learns."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps.harness.job import parser
from apps.mlp.program import Program
from bench.harness import datasets
from bench.papers.modes.way import RANKS, Averages, Learner, Way
from malt.models.linear import Order
from malt.models.networks import cross_entropy, logits

NEVER = 10**9
"""More batches than any training has."""


class Mlp:
    """Pictures, and a network that tells them apart. A `Task`."""

    name = "apps.mlp"

    def __init__(self, what: str, folder: Path | None, options: Sequence[object], batches: int, target: float) -> None:
        self.target = target
        self.measure = f"test loss {target:g}"
        words = [str(word) for word in (*([folder] if folder else []), *options, "--exchange-every", batches)]
        self._problem = _alone(lambda: _load(words))
        self._problem.compile()
        settings = self._problem.options
        self._batch, self._step = settings.batch, settings.step
        self.every, self.rows, self.nbytes = settings.batch * batches, self._problem.rows, self._problem.nbytes
        sizes = "-".join(map(str, self._problem.sizes))
        self.what = f"{what}; {sizes} neurons, batches of {settings.batch}, momentum, step {settings.step:g}"
        dealt = np.random.default_rng(settings.seed).permutation(self.rows)
        self._shares = malt.simulate(lambda rank: self._problem.train.chosen(malt.shard(dealt)), RANKS)
        self.at_first = self.objective(_alone(self._problem.weights))
        self._timed = _alone(lambda: self._own(self._shares[0], {}))

    def objective(self, model: Any) -> float:
        """The mean cross-entropy of the test pictures."""
        test = self._problem.test
        return cross_entropy(logits(self._problem.network(list(model)), test), test.labels) / len(test)

    def learner(self, way: Way) -> Learner:
        settings = {} if way.is_collective else {"graph": way.graph, "sync": way.sync}
        mine = self._shares[malt.rank()]
        return (_Averaging if way.is_collective else _Exchanging)(self._own(mine, settings), self._batch, self._step)

    def _own(self, mine: Any, settings: Mapping[str, str]) -> Any:
        """The program's learner for these pictures. Without `settings` it never exchanges by itself. Collective."""
        problem = copy.copy(self._problem)
        problem.options = Namespace(**{**vars(problem.options), **(settings or {"exchange_every": NEVER})})
        return problem.learner(problem.weights(), mine)

    def order(self, generator: np.random.Generator) -> Order:
        order: Order = generator.permutation(len(self._shares[malt.rank()])).astype(np.int32)
        return order

    def work(self) -> int:
        """An epoch of one rank."""
        _Exchanging(self._timed, self._batch, self._step).learn(np.arange(len(self._shares[0]), dtype=np.int32))
        return len(self._shares[0])


class _Exchanging:
    """The program's own learner, at a step size that stays."""

    def __init__(self, learner: Any, batch: int, step: float) -> None:
        self._learner, self._batch, self._step = learner, batch, step
        self.vectors: Sequence[Any] = learner.vectors

    @property
    def model(self) -> Any:
        return self._learner.current()

    def learn(self, part: Order) -> None:
        for start in range(0, len(part), self._batch):
            self._learner.learn(part[start : start + self._batch], self._step)

    def exchange(self) -> None:
        """The program's learner exchanges by itself."""

    def finish(self) -> None:
        self._learner.finish()


class _Averaging(_Exchanging):
    """The same training, with a mean of all models at each exchange."""

    def __init__(self, learner: Any, batch: int, step: float) -> None:
        super().__init__(learner, batch, step)
        self.vectors = [Averages()]

    def exchange(self) -> None:
        self.vectors[0].take(self._learner.current())


def _load(words: Sequence[str]) -> Any:
    program = Program()
    return program.load(parser(program).parse_args(words))


def _alone(function: Any) -> Any:
    """The result of function() in a simulated world of one."""
    return malt.simulate(lambda rank: function(), 1)[0]


def digits() -> Mlp:
    """MNIST. OSError: it is not there."""
    options = ("--hidden", 128, "--batch", 32, "--step", 0.1)
    return Mlp("MNIST, 60,000 pictures", datasets.MNIST, options, 10, 0.12)


def small() -> Mlp:
    """The digits of scikit-learn."""
    options = ("--hidden", 32, "--batch", 16, "--step", 0.05)
    return Mlp("the digits of scikit-learn", None, options, 2, 1.0)
