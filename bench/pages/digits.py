"""One process of a network on MNIST, trained by PyTorch alone, by DDP, or through malt.torch.

python -m bench.pages.digits FOLDER OPTIONS --json FILE        OPTIONS: those of `Options`, as JSON
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import malt
from apps.mlp import pictures
from malt.models.networks import step_at

Epochs = list[dict[str, float]]
TESTED_AT_ONCE = 1000


@dataclass(frozen=True)
class Options:
    """What one run does."""

    way: str
    """"torch", "ddp" or "malt"."""
    batch: int
    """Pictures of a batch of one process."""
    step: float
    """The largest step size."""
    warm_up: float | None = None
    """The share of the training in which the step size rises to it in a line, to fall to 0 in a line. None: it falls
    along a cosine."""
    is_dense: bool = True
    """Whether the network is that of apps.mlp; else it is a small convolutional one."""
    epochs: int = 5
    every: int = 1
    """Batches between two exchanges of malt.torch."""
    average: str = "model"
    outer: tuple[float, float] | None = None
    wire: str | None = None
    top: float | None = None
    rows: int = 60_000
    threads: int = 1
    seed: int = 0


def network(is_dense: bool) -> nn.Module:
    """The network of apps.mlp, with its first weights' distribution; or a convolutional one of 80,202 parameters."""
    if not is_dense:
        return nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip
    layers = nn.Linear(784, 128), nn.Linear(128, 10)
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layers[0], nn.ReLU(), layers[1])


class Data:
    """Training pictures, the first so many, and test pictures, as tensors."""

    def __init__(self, folder: str, rows: int) -> None:
        train, test = pictures.load(folder, 0)
        self.x, self.y = _tensors(train, rows)
        self.test_x, self.test_y = _tensors(test, len(test))

    def accuracy(self, model: nn.Module) -> float:
        """The share of test pictures that are classified correctly."""
        right = 0
        with torch.no_grad():
            for x, y in zip(self.test_x.split(TESTED_AT_ONCE), self.test_y.split(TESTED_AT_ONCE), strict=True):
                right += int((model(x).argmax(1) == y).sum())
        return right / len(self.test_y)


def _tensors(some: pictures.Pictures, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.from_numpy(some.pixels[:rows].astype(np.float32) / np.float32(some.white))
    return pixels.view(-1, 1, 28, 28), torch.from_numpy(some.labels[:rows])


def batches(rank: int, ranks: int, epoch: int, options: Options) -> Iterator[torch.Tensor]:
    """Yield the rows of each batch of a rank in an epoch. All ranks have as many batches."""
    order = np.random.default_rng([options.seed, epoch]).permutation(options.rows)[rank::ranks]
    mine = torch.from_numpy(order)
    for start in range(0, len(mine) - options.batch + 1, options.batch):
        yield mine[start : start + options.batch]


class Process:
    """One rank of the training."""

    def __init__(self, options: Options, data: Data, rank: int, ranks: int) -> None:
        self._options, self._data, self.rank, self.ranks = options, data, rank, ranks
        self.model = network(options.is_dense)
        self.nbytes = 4 * sum(one.numel() for one in self.model.parameters())
        self.steps = 0
        """Batches so far."""

    def optimizer(self) -> torch.optim.Optimizer:
        """PyTorch's optimizer, in its fused form, which takes the least time."""
        return torch.optim.SGD(self.model.parameters(), lr=self._options.step, momentum=0.9, fused=True)

    def ring_nbytes(self) -> int:
        """Bytes that a rank sends in an allreduce of all parameters along a ring."""
        return round(self.nbytes * 2 * (self.ranks - 1) / self.ranks)

    def accuracy(self) -> float:
        """That of the model now."""
        return self._data.accuracy(self.model)

    def train(self, optimizer: Any, sent: Callable[[], int]) -> Epochs:
        """Train, and return after each epoch: seconds of training, bytes that this rank has sent, test accuracy."""
        options, data, seconds, found = self._options, self._data, 0.0, []
        total = options.epochs * (options.rows // self.ranks // options.batch)
        for epoch in range(options.epochs):
            start = time.perf_counter()
            for rows in batches(self.rank, self.ranks, epoch, options):
                optimizer.param_groups[0]["lr"] = self._step_at(self.steps / total)
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(data.x[rows]), data.y[rows]).backward()
                optimizer.step()
                self.steps += 1
            seconds += time.perf_counter() - start
            found.append({"seconds": seconds, "sent": sent(), "test_accuracy": self.accuracy()})
        return found

    def _step_at(self, done: float) -> float:
        step, warm_up = self._options.step, self._options.warm_up
        return step * (1 + math.cos(math.pi * done)) / 2 if warm_up is None else step_at(step, done, warm_up)


def run_pytorch(options: Options, data: Data) -> tuple[int, Epochs]:
    """Train by PyTorch alone or DDP over gloo: what torch.distributed needs is in the environment."""
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    one = Process(options, data, rank, ranks)
    if options.way == "torch":
        return rank, one.train(one.optimizer(), lambda: 0)
    torch.distributed.init_process_group("gloo")
    one.model = nn.parallel.DistributedDataParallel(one.model)
    torch.distributed.barrier()
    return rank, one.train(one.optimizer(), lambda: one.steps * one.ring_nbytes())


def run_malt(options: Options, data: Data) -> tuple[int, Epochs]:
    """Train through malt.torch. All ranks exchange in step, so that their models are equal after each exchange."""
    one = Process(options, data, malt.rank(), malt.size())
    outer = None if options.outer is None else malt.optim.nesterov(*options.outer)
    optimizer = malt.torch.Optimizer(
        one.optimizer(), one.model, options.every, options.average, sync="bsp", outer=outer, wire=options.wire,
        top=options.top,
    )  # fmt: skip
    malt.barrier()
    found = one.train(optimizer, lambda: sum(each.statistics().bytes_sent for each in optimizer.vectors))
    start = time.perf_counter()
    optimizer.finish()
    found[-1]["seconds"] += time.perf_counter() - start
    found[-1]["sent"] += one.ring_nbytes()
    found[-1]["test_accuracy"] = one.accuracy()
    return one.rank, found


def main() -> None:
    folder, words = sys.argv[1:3]
    options = Options(**json.loads(words))
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rank, found = (run_malt if options.way == "malt" else run_pytorch)(options, Data(folder, options.rows))
    if rank == 0:
        Path(sys.argv[-1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
