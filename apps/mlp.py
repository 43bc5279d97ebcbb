"""A neural network of dense layers that tells pictures apart, by stochastic gradient descent: one vector a layer.

    python -m apps.mlp [FOLDER] ...               alone
    malt run -n 4 -m apps.mlp [FOLDER] ...        on four ranks

Every rank trains on its own rows, and averages each layer with its peers every so many batches: as soon as a layer
has taken its step it is sent, while the gradients of the layers below are still being computed.
"""

from __future__ import annotations

import argparse
import math
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import malt
from apps import modelfile, modelmemory, pictures
from apps.checkpoints import Checkpoints, check_checkpoint, fingerprint
from apps.network import Network, Weights, cross_entropy, first_weights
from apps.optimizer import OPTIMIZERS, step_at
from apps.outputs import check_outputs
from apps.pictures import Pictures
from apps.program import (
    Parser,
    add_common_options,
    common_hash,
    header,
    keeps_snapshots,
    main,
    on_lowest_rank,
    real_number,
    say,
    user_errors,
    whole_number,
)  # fmt: skip
from apps.report import Clock, Column, Mark, Report, mark, over_ranks
from apps.shares import Shares
from malt.replica import consensus
from malt.world.agreement import succeed

MEASURES = (Column("train_loss", "training loss", ".4f"), Column("test_accuracy", "test accuracy", ".4f"))
_COPIES = 5
"""Of the weights, that a rank has in training: their gradients, what the optimizer keeps, one to merge with."""
EVALUATED_ROWS = 1000
"""Rows that are evaluated at once."""


def parser() -> Parser:
    """The command line."""
    made = Parser(prog="python -m apps.mlp", description=__doc__.splitlines()[0])
    add = made.add_argument
    add("data", nargs="?", metavar="FOLDER",
        help="with idx files named as those of MNIST, plain or .gz (the digits of scikit-learn)")  # fmt: skip
    add("--hidden", type=layer_sizes, default=[128], metavar="N[,N...]", help="neurons of the hidden layers (128)")
    add("--batch", type=whole_number(1), default=32, metavar="N", help="examples of one step (%(default)s)")
    add("--optimizer", choices=sorted(OPTIMIZERS), default="momentum", help="(%(default)s)")
    add("--step", type=real_number(0), metavar="X", help="the first step size; it falls to 0 in a line ("
        + ", ".join(f"{name}: {kind.step:g}" for name, kind in OPTIMIZERS.items()) + ")")  # fmt: skip
    add("--l2", type=real_number(0), default=0.0, metavar="X", help="weight of |w|^2 / 2, without biases (%(default)g)")
    add("--model", metavar="FILE", help="start from a model that --save wrote")
    add_common_options(made, epochs=10, exchange_every=10, graph="auto", sync="asp", unit="batches")
    return made


def layer_sizes(text: str) -> list[int]:
    """For argparse: "128", or "256,64"."""
    sizes = [int(size) if size.isdecimal() else 0 for size in text.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"must be whole numbers from 1 up, with commas between them, got {text}")
    return sizes


class Trainer:
    """One rank's replica of the network; `vectors` carry it, a layer each, and are its weights."""

    def __init__(self, weights: Sequence[Weights], mine: Pictures, options: Namespace) -> None:
        self.weights, self._every = weights, options.exchange_every
        self._network = Network(weights, options.l2)
        self._optimizers = [OPTIMIZERS[options.optimizer].make(layer) for layer in weights]
        self.vectors = [
            malt.vector(layer, graph=options.graph, sync=options.sync, check_finite=True, name=f"layer {place}")
            for place, layer in enumerate(weights, 1)
        ]
        self._batch = options.batch
        self.take(mine)
        self._batches = 0

    def take(self, mine: Pictures) -> None:
        """From here on `order` names examples of `mine`. Local."""
        self._mine = mine
        self._chosen = np.empty((min(self._batch, len(mine)), mine.pixels.shape[1]), np.uint8)

    def learn(self, order: Sequence[int], step: float) -> None:
        """Take one step on the examples named in `order`; exchange where that is due. One-sided."""
        labels = self._show(order)
        logits = self._network.forward(len(order))
        self._batches += 1
        due = self._batches % self._every == 0
        if due and not math.isfinite(cross_entropy(logits, labels)):
            raise FloatingPointError(_too_large(f"now {step:.3g}"))
        for layer in self._network.backward(labels):
            self._optimizers[layer].update(self._network.gradients[layer], step)
            if due:
                self.vectors[layer].scatter()  # on its way while the layers below are computed
        if due:
            for vector in reversed(self.vectors):
                vector.gather(malt.AVG)

    def state(self) -> dict[str, Any]:
        """What a trainer of as many neurons, also on another number of ranks, goes on with: views."""
        state: dict[str, Any] = {}
        for place, (layer, optimizer) in enumerate(zip(self.weights, self._optimizers, strict=True), 1):
            state[f"layer_{place}"] = layer
            state |= {f"layer_{place}_{name}": value for name, value in optimizer.state().items()}
        return state

    def restore(self, state: Mapping[str, Any], epochs: int) -> None:
        """Go on with `state`, the same on all ranks, after so many epochs."""
        for place, (layer, optimizer) in enumerate(zip(self.weights, self._optimizers, strict=True), 1):
            layer[:] = state[f"layer_{place}"]
            optimizer.restore({name: state[f"layer_{place}_{name}"] for name in optimizer.state()})
        self._batches = epochs * -(-len(self._mine) // self._batch)

    def finish(self) -> None:
        """Make the weights one and the same on all ranks: the mean over those that have trained. Collective."""
        for vector in self.vectors:
            vector.close()
        consensus.mean(malt.init().transport, self.weights, counts=self._batches > 0)

    def _show(self, order: Sequence[int]) -> Any:
        """Put the examples into the network; their labels."""
        chosen = np.take(self._mine.pixels, order, axis=0, out=self._chosen[: len(order)], mode="clip")
        show(self._network, chosen, self._mine.white)
        return self._mine.labels[order]


def show(network: Network, pixels: Any, white: int) -> None:
    """Put pictures into the network, their pixels scaled to 0..1."""
    np.multiply(pixels, np.float32(1 / white), out=network.inputs(len(pixels)), dtype=np.float32)


def evaluate(weights: Sequence[Weights], some: Pictures) -> tuple[float, float]:
    """Mean cross-entropy, and share of pictures that are told right."""
    network = Network(weights)
    loss, right = 0.0, 0
    for start in range(0, len(some), EVALUATED_ROWS):
        labels = some.labels[start : start + EVALUATED_ROWS]
        show(network, some.pixels[start : start + EVALUATED_ROWS], some.white)
        logits = network.forward(len(labels))
        loss += cross_entropy(logits, labels)
        right += int((logits.argmax(axis=1) == labels).sum())
    return loss / len(some), right / len(some)


class Run:
    """One rank's part of a training run: what `mark` and the report need of it."""

    def __init__(
        self, options: Namespace, weights: Sequence[Weights], train: Pictures, test: Pictures, checkpoints: Checkpoints
    ) -> None:
        self.options, self.everything, self.test, self.checkpoints = options, train, test, checkpoints
        dealt = np.random.default_rng(options.seed).permutation(len(train))
        self._dealt, self.shares = dealt, Shares(len(train))
        self.mine = train.chosen(malt.shard(dealt))
        self.first_step = OPTIMIZERS[options.optimizer].step if options.step is None else options.step
        for layer in weights:
            malt.init().transport.broadcast(layer)
        with user_errors():  # the vectors check --graph and --sync
            self.trainer = Trainer(weights, self.mine, options)
        if checkpoints.state:
            self.trainer.restore(checkpoints.state, checkpoints.epoch)
        self.clock = Clock()
        self.epoch, self.trained = checkpoints.epoch, 0
        """The last epoch that was trained, and the examples of this run."""
        self.marks: list[Mark] = []
        self.snapshots: list[list[Weights]] = []

    def train(self) -> None:
        """All epochs."""
        generator = np.random.default_rng([self.options.seed, 1 + malt.rank()])
        for _ in range(self.checkpoints.epoch):
            generator.permutation(len(self.mine))  # drawn again, for the following to be other ones
        malt.barrier()
        said = time.monotonic()
        for epoch in self.shares.epochs(1 + self.checkpoints.epoch, self.options.epochs, self.options.sync):
            if self.shares.changed():
                self.mine = self.everything.chosen(malt.shard(self._dealt))
                self.trainer.take(self.mine)
            self.clock.start()
            self._train_epoch(epoch, generator.permutation(len(self.mine)))
            self.clock.stop()
            self._take_down(epoch - 1 - self.checkpoints.epoch)
            self.epoch = epoch
            self._keep()
            if time.monotonic() - said > 2:
                said = time.monotonic()
                say(f"... epoch {epoch} of {self.options.epochs} after {self.clock.seconds:.1f} s")

    def _train_epoch(self, epoch: int, order: Any) -> None:
        for start in range(0, len(order), self.options.batch):
            batch = order[start : start + self.options.batch]
            done = (epoch - 1) * len(order) + start
            self.trainer.learn(batch, step_at(self.first_step, done / (len(order) * self.options.epochs)))
            self.trained += len(batch)

    def _take_down(self, place: int) -> None:
        """The end of epoch number `place` of this run, from 0. One that comes again takes its own place, and those that
        followed it are to come again too."""
        malt.heartbeat()  # whoever has finished waits for this rank, and must know that it is alive
        vectors = self.trainer.vectors
        traffic = [vector.statistics() for vector in vectors]
        nbytes = [vector.array.nbytes for vector in vectors]
        self.marks[place:] = [mark(self.trained, self.clock.seconds, traffic, nbytes)]
        if keeps_snapshots():
            self.snapshots[place:] = [[layer.copy() for layer in self.trainer.weights]]

    def _keep(self) -> None:
        """Write a checkpoint, where one is due; not after the last epoch, whose model is not there yet."""
        is_finite = all(np.isfinite(layer).all() for layer in self.trainer.weights)
        if self.trained and self.epoch < self.options.epochs and is_finite:
            self.checkpoints.save(self.epoch, self._examples(), self.clock, self.trainer.state)

    def _examples(self) -> int:
        return (self.epoch - self.checkpoints.epoch) * len(self.everything)

    def finish(self) -> None:
        """Make the model one and the same on all ranks, and write the last checkpoint. Collective."""
        is_kept = self.checkpoints.is_on and keeps_snapshots() and self.trained
        state = {name: np.copy(value) for name, value in self.trainer.state().items()} if is_kept else {}
        self.trainer.finish()
        named = {str(place): layer for place, layer in enumerate(self.trainer.weights, 1)}
        if self.checkpoints.final:
            for name, layer in named.items():
                layer[:] = self.checkpoints.final[name]
        elif self.marks:
            state = state or self.trainer.state()
            self.checkpoints.conclude(self.epoch, self._examples(), self.clock, state, named)

    def measures(self, weights: Sequence[Weights]) -> dict[str, float | None]:
        """How good a model is: its mean cross-entropy over all training rows, its accuracy on others."""
        loss, _ = evaluate(weights, self.everything)
        _, accuracy = evaluate(weights, self.test)
        if not math.isfinite(loss):
            raise FloatingPointError(_too_large(f"{self.first_step:.3g} at first"))
        return {"train_loss": loss, "test_accuracy": accuracy}


def _too_large(step: str) -> str:
    return f"the training loss is not finite: the step size, {step}, is too large"


def run(arguments: Sequence[str]) -> None:
    """The program, on every rank. Collective. BadInput, FloatingPointError: as the user must see it."""
    options = parser().parse_args(arguments)
    transport = malt.init().transport
    with user_errors():
        malt.graph(options.graph, malt.size())
        pictures_read = [("FOLDER", path) for path in pictures.paths(options.data)]
        check_outputs(options, [*pictures_read, ("--model", options.model)])
        check_checkpoint(options)
        train, test = succeed(transport, lambda: pictures.load(options.data, options.seed))
        sizes = _sizes(options, train, test)
        _check_memory(options, sizes)
        weights = succeed(transport, lambda: _first_weights(options, sizes))
        checkpoints = Checkpoints(options, "apps.mlp", _match(options, weights, train))
    told = header("apps.mlp", vars(options))
    part = Run(options, weights, train, test, checkpoints)
    say(_introduction(told, part))
    with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is found and told
        part.train()
        part.finish()
        marks = over_ranks(transport, part.marks, checkpoints.before)
        digest = common_hash(weights)
        lost, resumed = part.shares.losses.told, checkpoints.epoch
        report = Report(told, MEASURES, resumed_from=resumed, before=checkpoints.before, lost_ranks=lost)
        on_lowest_rank(lambda: _tell(part, report, marks, digest))


def _sizes(options: Namespace, train: Pictures, test: Pictures) -> list[int]:
    """How many neurons each layer has."""
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    return [train.pixels.shape[1], *options.hidden, classes]


def _check_memory(options: Namespace, sizes: Sequence[int]) -> None:
    """Whether networks of so many neurons fit. Collective."""
    weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))
    nbytes = np.dtype(np.float32).itemsize * weights
    modelmemory.check(
        (_COPIES + modelmemory.snapshots(options.epochs)) * nbytes + modelmemory.queues_nbytes(options.graph, nbytes),
        f"--hidden {','.join(map(str, options.hidden))} makes a network of {weights:,} weights",
        "take fewer neurons, ranks or epochs",
    )


def _first_weights(options: Namespace, sizes: Sequence[int]) -> list[Weights]:
    """What it starts from."""
    if options.model is not None:
        return modelfile.load(options.model, sizes)
    return first_weights(sizes, np.random.default_rng(options.seed))


def _match(options: Namespace, weights: Sequence[Weights], train: Pictures) -> dict[str, Any]:
    """What a checkpoint must have been written with."""
    same = {name: getattr(options, name) for name in ("optimizer", "step", "l2", "seed")}
    neurons = [len(weights[0]) - 1, *(layer.shape[1] for layer in weights)]
    return {"neurons": neurons, **same, "pictures": len(train), "CRC-32 of labels": fingerprint(train.labels)}


def _introduction(told: dict[str, Any], part: Run) -> str:
    options, layers = part.options, part.trainer.weights
    sizes = [len(layers[0]) - 1, *(layer.shape[1] for layer in layers)]
    return (
        f"{told['program']} {told['version']}: {told['mpi']}, {told['ranks']} ranks, graph {options.graph}, "
        f"sync {options.sync}, seed {options.seed}\n"
        f"{len(part.everything):,} pictures of {sizes[0]:,} pixels; {len(part.test):,} to test on\n"
        f"{'-'.join(map(str, sizes))} neurons, {options.optimizer}, first step {part.first_step:g}, l2 {options.l2:g}, "
        f"batches of {options.batch:,}, averaging every {options.exchange_every:,} batches, {options.epochs} epochs"
        f"{part.checkpoints}\n"
    )


def _tell(part: Run, report: Report, marks: Sequence[Mark], digest: str) -> None:
    """Evaluate what was kept, print it, and write the files that were asked for."""
    for epoch, model in zip(marks, part.snapshots, strict=True):
        report.add_epoch(epoch, **part.measures(model))
        malt.heartbeat()
    report.conclude(marks, digest, **part.measures(part.trainer.weights))
    print(report.table())
    if part.options.save:
        modelfile.save(part.options.save, part.trainer.weights)
    if part.options.json:
        report.write(part.options.json)
    print(report.last_line(), flush=True)


if __name__ == "__main__":
    main("apps.mlp", run)
