"""k-means: clusters of rows around centres, by Lloyd's iterations or by mini-batches.

    python -m apps.kmeans [DATA] ...               alone
    malt run -n 4 -m apps.kmeans [DATA] ...        on four ranks

Every rank has all centres, and finds the nearest ones of its own rows. Ranks add up the rows of each cluster: an epoch
is an iteration of Lloyd's, or with --batch a pass in steps. The inertia is the sum of squared distances to the nearest
centres.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import malt
from apps import harness
from apps.harness import TRAFFIC, Array, Column, CommonShares, Measures, Need, Parser, Start
from apps.kmeans import kernels
from apps.kmeans.points import Centres, Dealt, Found
from apps.kmeans.start import first_centres, load
from apps.linear.reading import EMBEDDED, described
from malt.models import linear

ITERATIONS, PASSES = 300, 10
_COPIES: Final = 8
"""Arrays of the centres' size on a rank: centres, sums, what travels and what is made of them."""


class Trainer(harness.Together):
    """One rank's rows, and the centres."""

    def __init__(self, problem: Problem, start: Start) -> None:
        super().__init__()
        self._problem, self._options, self._generator = problem, problem.options, start.generator
        self._dealt = Dealt(problem.data, start.shares)
        self.vectors = [self._dealt.sums]
        self._centres = Centres(start.state or {"centres": self._first()})
        self._found: Found | None = None
        """What is known of the clusters of these centres."""
        self._has_converged = False

    def _first(self) -> Array:
        options = self._options
        if options.model is None:
            return first_centres(self._dealt, options.clusters, options.seed)
        return malt.together(lambda: load(options.model, self._problem.shape))

    def take(self) -> None:
        self._dealt.take()
        self._found = None

    def order(self) -> Array:
        """The order of the rows in mini-batches."""
        if not self._options.batch:
            return np.empty(0)
        return self._generator.permutation(len(self._dealt.numbers)).astype(np.int32)

    def train(self, epoch: int, order: Array) -> int:
        if self._options.batch:
            self._pass(order)
        else:
            self._iterate()
        return len(self._dealt.numbers)

    def _pass(self, order: Array) -> None:
        for batch in np.array_split(order, -(-self._problem.rows // self._options.batch)):
            self._centres.step(self._dealt.some(self._centres.values, linear.readonly(batch, np.int32)))
        self._found = self._dealt.whole(self._centres.values)
        if self._centres.fill(self._dealt, self._found):
            self._found = self._dealt.whole(self._centres.values)

    def _iterate(self) -> None:
        shift = self._centres.move(self._dealt, self._found or self._dealt.whole(self._centres.values))
        self._found = self._dealt.whole(self._centres.values)
        self._has_converged = not self._found.changed or shift <= self._problem.tolerance * self._found.variance

    def has_converged(self) -> bool:
        return self._has_converged

    def model(self) -> Mapping[str, Array]:
        return {"centres": self._centres.values}

    def state(self) -> Mapping[str, Any]:
        return self._centres.state()

    def measures(self) -> Measures:
        self.loss = (self._found or self._dealt.whole(self._centres.values)).inertia
        return {"inertia": self.loss}

    def finish(self) -> None:
        harness.same_start([self._centres.values])

    def saved(self) -> Mapping[str, Any]:
        """`centres`, whose columns are the features in the order of the file."""
        return {"centres": self._centres.values, "zero_based": self._problem.data.zero_based}


class Problem(harness.Problem):
    """The rows."""

    trains, deals, same = Trainer, CommonShares, ("clusters", "batch", "seed")

    def __init__(self, options: Namespace, data: malt.Dataset) -> None:
        self.options, self.data, self.rows = options, data, len(data.y)
        self.shape = (options.clusters, data.X.shape[1])

    @property
    def tolerance(self) -> float:
        return float(self.options.shift_tolerance)

    def memory(self) -> Need:
        clusters, features = self.shape
        what = f"--clusters {clusters} makes centres of {features:,} features"
        return Need(_COPIES * 8 * clusters * features, what, "take fewer clusters or ranks, or correct a stray feature")

    def facts(self) -> dict[str, Any]:
        X = self.data.X
        size = {"rows": self.rows, "features": X.shape[1], "non-zeros": X.nnz}
        return {**size, "CRC-32 of values": harness.fingerprint(X.data)}

    def compile(self) -> None:
        kernels.compile_kernels()

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        return (
            f"{described(self.data, {})}\n{options.clusters:,} clusters, "
            f"centres of {options.model or 'k-means++'}, "
            + (f"mini-batches of {options.batch:,} rows" if options.batch else "Lloyd's iterations")
        )


class Program(harness.Program):
    """The command line."""

    measures = (Column("inertia", "inertia", ".8g"),)
    traffic = TRAFFIC[:1]

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("data", nargs="?", metavar="DATA", help="svmlight text, also .gz .bz2 .xz; labels are ignored (default: "
            "the embedded census data a9a)")  # fmt: skip
        parser.whole("--clusters", default=8, metavar="K", text="number of clusters")
        parser.whole("--batch", text="rows of all ranks per step of mini-batch k-means (default: Lloyd's iterations on "
            "all)")  # fmt: skip
        parser.whole("--epochs", least=0, text=f"maximum iterations (default: {ITERATIONS}); with --batch, passes over "
            f"rows ({PASSES})")  # fmt: skip
        add("--tolerance", dest="shift_tolerance", type=harness.number, metavar="X",
            help="stop when the squared movement of the centres is below this fraction of the variance "
            "(default: 1e-4); 0: when no row changes its cluster")  # fmt: skip
        add("--model", metavar="FILE", help="start from the centres of a model written by --save (default: k-means++)")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [("DATA", options.data or EMBEDDED / "train.svm.xz"), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        if options.batch and options.shift_tolerance is not None:
            raise ValueError("--tolerance is for Lloyd's iterations: with --batch the training ends after --epochs")
        options.epochs = (PASSES if options.batch else ITERATIONS) if options.epochs is None else options.epochs
        options.shift_tolerance = 1e-4 if options.shift_tolerance is None else options.shift_tolerance
        path = options.data or EMBEDDED / "train.svm.xz"
        data = malt.open_svmlight(path, labels="raw")
        if options.clusters > len(data.y):
            raise ValueError(f"{path}: --clusters {options.clusters:,} of {len(data.y):,} rows: take fewer")
        return Problem(options, data)


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
