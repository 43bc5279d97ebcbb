"""One rank of a small convolutional network on MNIST, trained by DDP or through malt.torch; for bench.pages.torch.

python -m bench.pages.cnn FOLDER OUT OPTIONS        OPTIONS: those of `Options`, as JSON
"""

from __future__ import annotations

import json
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

TESTED_AT_ONCE = 1000


@dataclass(frozen=True)
class Options:
    """What one run does."""

    way: str
    """"ddp", or "malt"."""
    rate: float
    every: int = 1
    average: str = "model"
    outer: tuple[float, float] | None = None
    wire: str | None = None
    top: float | None = None
    epochs: int = 10
    batch: int = 32
    rows: int = 10_000
    seed: int = 0


def network() -> nn.Module:
    """The network: 80,202 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


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
    pixels = torch.from_numpy(some.pixels[:rows].astype(np.float32) / some.white)
    return pixels.view(-1, 1, 28, 28), torch.from_numpy(some.labels[:rows])


def batches(rank: int, ranks: int, epoch: int, options: Options) -> Iterator[torch.Tensor]:
    """Yield the rows of each batch of a rank in an epoch. All ranks have as many batches."""
    order = np.random.default_rng([options.seed, epoch]).permutation(options.rows)[rank::ranks]
    mine = torch.from_numpy(order)
    for start in range(0, len(mine) - options.batch + 1, options.batch):
        yield mine[start : start + options.batch]


def train(
    options: Options, data: Data, rank: int, ranks: int, model: nn.Module, optimizer: Any, sent: Callable[[], int]
) -> list[dict[str, float]]:  # fmt: skip
    """Train, and return after each epoch: seconds of training, bytes that this rank has sent, test accuracy."""
    steps = options.epochs * (options.rows // ranks // options.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    seconds, found = 0.0, []
    for epoch in range(options.epochs):
        start = time.perf_counter()
        for rows in batches(rank, ranks, epoch, options):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
            schedule.step()
        seconds += time.perf_counter() - start
        found.append({"seconds": seconds, "sent": sent(), "accuracy": data.accuracy(model)})
    return found


def run_ddp(options: Options, data: Data) -> tuple[int, list[dict[str, float]]]:
    """Train by DDP over gloo. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set."""
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    nbytes = 4 * sum(one.numel() for one in model.parameters())
    steps = 0

    def sent() -> int:
        nonlocal steps
        steps += options.rows // ranks // options.batch
        return round(steps * nbytes * 2 * (ranks - 1) / ranks)  # of an allreduce along a ring

    torch.distributed.barrier()
    found = train(options, data, rank, ranks, model, optimizer, sent)
    torch.distributed.destroy_process_group()
    return rank, found


def run_malt(options: Options, data: Data) -> tuple[int, list[dict[str, float]]]:
    """Train through malt.torch. All ranks exchange in step, so that their models are equal after each exchange."""
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    outer = None if options.outer is None else malt.optim.nesterov(*options.outer)
    optimizer = malt.torch.Optimizer(
        inner, model, options.every, options.average, sync="bsp", outer=outer, wire=options.wire, top=options.top
    )
    malt.barrier()
    sent = lambda: sum(one.statistics().bytes_sent for one in optimizer.vectors)  # noqa: E731
    found = train(options, data, malt.rank(), malt.size(), model, optimizer, sent)
    nbytes = 4 * sum(one.numel() for one in model.parameters())
    start = time.perf_counter()
    optimizer.finish()
    found[-1]["seconds"] += time.perf_counter() - start
    found[-1]["sent"] += round(nbytes * 2 * (malt.size() - 1) / malt.size())
    found[-1]["accuracy"] = data.accuracy(model)
    return malt.rank(), found


def main() -> None:
    folder, out, words = sys.argv[1:]
    options = Options(**json.loads(words))
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    run = run_ddp if options.way == "ddp" else run_malt
    rank, found = run(options, Data(folder, options.rows))
    if rank == 0:
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
