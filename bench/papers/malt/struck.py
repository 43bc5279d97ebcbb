"""A linear SVM on ranks of which one is killed in the midst of an epoch.

    malt run -n 4 --survive -m bench.papers.malt.struck FOLDER [--killed-in EPOCH] [OPTION ...]

FOLDER: rows that bench/benchmarks/svm/planted.py has written. OPTION: one of apps.svm. Ranks are paced: four of them on
fewer cores are as fast as on cores of their own. The last rank kills itself half-way through its rows of that epoch.
With --rejoin it comes back; with --until-back the others exchange, and train no more, until then.
"""

from __future__ import annotations

import os
import signal
import time
from argparse import Namespace

import malt
from apps import harness
from apps.harness import Array, Parser, Start
from apps.svm import program, sgd
from bench.benchmarks.svm import planted

PACE_S = 100e-6
"""Seconds that a rank takes for a row."""
_PAUSE_S = 0.01
"""Between two exchanges of those that wait: the rank that starts needs the cores."""


class Paced:
    """Training that takes `pace_s` for an example: the rank sleeps for what is left of it.

    A sleep lasts some tenths of a millisecond too long. The next one is shorter for it.
    """

    def __init__(self, pace_s: float) -> None:
        self._pace_s, self._late_s, self._begun = pace_s, 0.0, 0.0

    def begin(self) -> None:
        self._begun = time.perf_counter() - self._late_s

    def end(self, count: int) -> None:
        over = self._begun + self._pace_s * count
        time.sleep(max(0.0, over - time.perf_counter()))
        self._late_s = time.perf_counter() - over


class Trainer(sgd.Trainer):
    """One rank's rows, in which it may be killed."""

    def __init__(self, problem: sgd.Problem, start: Start) -> None:
        super().__init__(problem, start)
        self._pace = Paced(PACE_S)

    def train(self, epoch: int, order: Array) -> int:
        is_struck = epoch == self._options.killed_in and malt.rank() == malt.size() - 1 and not malt.rejoined()
        parts = list(self._exchanges.parts(order))
        for number, (part, due) in enumerate(parts):
            if is_struck and number >= len(parts) / 2:
                os.kill(os.getpid(), signal.SIGKILL)
            self._pace.begin()
            self._learner.learn(part)
            if due:
                with self._exchanges.exchange():
                    self._learner.exchange()
            self._pace.end(len(part))
            while self._options.until_back and epoch > self._options.killed_in and len(malt.alive()) < malt.size():
                self._learner.learn(part[:0])
                self._learner.exchange()
                time.sleep(_PAUSE_S)
        return len(order)


class Problem(sgd.Problem):
    """The rows, and how they are trained."""

    trains = Trainer


class Program(planted.Program):
    """apps.svm on a folder of rows, with a rank that is killed."""

    def add_options(self, parser: Parser) -> None:
        super().add_options(parser)
        parser.add_argument("--killed-in", type=harness.whole_number(1), metavar="EPOCH")
        parser.add_argument("--until-back", action="store_true")

    def load(self, options: Namespace) -> Problem:
        program.settle(options)
        return Problem(options, *self.read(options))


if __name__ == "__main__":
    harness.main("bench.papers.malt.struck", lambda arguments: harness.run(Program(), arguments))
