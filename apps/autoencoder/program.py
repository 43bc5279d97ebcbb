"""A sparse autoencoder that learns features of patches of pictures, by L-BFGS through malt.map_reduce.

    python -m apps.autoencoder [DATA] ...               alone
    malt run -n 4 -m apps.autoencoder [DATA] ...        on four ranks

The lowest rank has the patches. Chunks of them travel to the other ranks once. Later iterations send their hashes.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.autoencoder import patches
from apps.autoencoder.network import Sums, first_weights, layers, length, load, objective, sums
from apps.autoencoder.patches import Patches
from apps.autoencoder.png import save_features
from apps.harness import Array, Column, Measures, Need, Parser, Report, Start

_COPIES = 40
"""Arrays of the weights' length on a rank: the history of L-BFGS, sums of chunks."""


class Trainer(harness.Together):
    """The weights, which are the same on all ranks."""

    def __init__(self, problem: Problem, start: Start) -> None:
        super().__init__()
        self._problem, self._options, self._shares = problem, problem.options, start.shares
        first = malt.together(problem.first_weights)
        harness.same_start([first])
        self._w = start.state["w"] if start.state else first
        self._first_norm, self._epoch = float(start.state.get("first_norm", 0.0)), start.epoch
        self._visited, self._converged = 0, False
        self._value = math.nan
        """The loss of the weights, until it is measured."""

    def run(self, training: harness.Training) -> None:
        training.train_by(self._minimize)

    def _minimize(self, ended: Callable[[int], bool]) -> None:
        def after(result: malt.optim.Result) -> bool:
            self._epoch, self._value = self._epoch + 1, result.value
            self.loss = result.value
            self._converged = result.gradient_norm <= self._options.gradient_tolerance * self._first_norm
            visited, self._visited = self._visited, 0
            self._shares.changed(self._shares.present())
            return ended(visited)

        if not self._first_norm:
            self._first_norm = malt.optim.lbfgs(self._function, self._w, max_iterations=0).gradient_norm
        left = self._options.epochs - self._epoch
        malt.optim.lbfgs(self._function, self._w, tolerance=0.0, max_iterations=left, callback=after)

    def _function(self, w: Array) -> tuple[float, Array]:
        """The objective and its gradient at w. Collective."""
        if len(set(malt.hosts())) > 1:  # hosts of different kinds may round otherwise
            harness.same_start([w])
        options = self._options
        found = Sums(*self._sums(w))
        return objective(w, self._problem.pixels, found, options.sparsity, options.sparsity_weight, options.l2)

    def _sums(self, w: Array) -> tuple[Any, ...]:
        """The sums over all patches. Collective. Where the rank that has them fails, the next one makes them anew."""

        def counted(w: Array, rows: Array) -> tuple[Any, ...]:
            self._visited += len(rows)
            return sums(w, rows)

        while True:
            try:
                rows = self._problem.data.rows() if malt.lowest() else None
                found: tuple[Any, ...] = malt.map_reduce(counted, w, rows)
                return found
            except malt.PeerLost as error:
                self._shares.check(error)

    def has_converged(self) -> bool:
        return self._converged

    def measures(self) -> Measures:
        value, self._value = self._value, math.nan
        loss = self._function(self._w)[0] if math.isnan(value) else value
        sent = harness.by_rank(malt.init().chunk_statistics().bytes_sent)
        return {"loss": loss, "chunk_bytes": sum(sent.values())}

    def model(self) -> Mapping[str, Array]:
        return {"w": self._w}

    def state(self) -> Mapping[str, Any]:
        return {"w": self._w, "first_norm": self._first_norm}

    def finish(self) -> None:
        harness.same_start([self._w])

    def saved(self) -> Mapping[str, Any]:
        return layers(self._w, self._problem.pixels)._asdict()

    def draw(self, path: str) -> None:
        save_features(path, layers(self._w, self._problem.pixels).U.T, self._problem.side)

    def warning(self, report: Report) -> str:
        return "" if math.isfinite(report.final["loss"]) else "the loss is not finite"


class Problem(harness.Problem):
    """The patches, and the size of the network."""

    trains = Trainer
    same = ("hidden", "sparsity", "sparsity_weight", "l2", "patches", "seed", "gradient_tolerance")

    def __init__(self, options: Namespace, data: Patches, facts: Mapping[str, Any]) -> None:
        self.options, self.data, self.rows = options, data, options.patches
        self.pixels, self.side, self._check = facts["pixels"], facts["side"], facts["check"]

    def memory(self) -> Need:
        nbytes = _COPIES * length(self.pixels, self.options.hidden) * np.dtype(np.float64).itemsize
        return Need(nbytes, f"--hidden {self.options.hidden:,} makes a large network", "take fewer units, or ranks")

    def facts(self) -> dict[str, Any]:
        return {"CRC-32 of patches": self._check}

    def first_weights(self) -> Array:
        """The weights to begin with. Local. ValueError, OSError: those of --model cannot be read, or do not fit."""
        shape = self.pixels, self.options.hidden
        if self.options.model is not None:
            return load(self.options.model, *shape)
        return first_weights(*shape, np.random.default_rng(self.options.seed))

    def introduction(self, trainer: Trainer) -> str:
        options = self.options
        sparse = f"mean activation {options.sparsity:g} by weight {options.sparsity_weight:g}"
        return (
            f"{self.rows:,} patches of {self.pixels:,} pixels\n"
            f"{options.hidden:,} hidden units, {sparse if options.sparsity else 'not sparse'}, l2 {options.l2:g}, lbfgs"
        )


class Program(harness.Program):
    """The command line."""

    measures = (Column("loss", "loss", ".9g"), Column("chunk_bytes", "chunk bytes", ",d"))
    traffic = ()

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("data", nargs="?", metavar="DATA",
            help="pictures: an idx file, also .gz, or a folder with MNIST's (default: embedded digits)")  # fmt: skip
        size = f"{patches.SIDE} x {patches.SIDE}"
        parser.whole("--patches", default=10000, text=f"random patches of {size} pixels")
        parser.whole("--hidden", default=25, text="number of hidden units")
        parser.real("--sparsity", 0.01, "target mean activation of each hidden unit; 0: any", harness.share_below_1)
        parser.real("--sparsity-weight", 3.0, "weight of that penalty")
        parser.real("--l2", 1e-4, "weight of |w|^2 / 2, without biases")
        parser.whole("--epochs", default=400, least=0, text="maximum number of iterations")
        parser.real("--tolerance", 1e-5, "stop at this gradient norm, relative to the first one",
                    dest="gradient_tolerance")  # fmt: skip
        add("--model", metavar="FILE", help="start from a model written by --save")
        add("--picture", metavar="FILE", help="draw what each hidden unit has learned to FILE, as PNG")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [*(("DATA", path) for path in patches.paths(options.data)), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        data, facts = Patches(options.data, options.patches, options.seed), None
        while facts is None:  # the lowest rank may fail in it
            facts = harness.of_lowest(malt.together(lambda: data.facts() if malt.lowest() else None))
        return Problem(options, data, facts)


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
