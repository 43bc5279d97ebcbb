"""One process of a network of dense layers on MNIST, trained by PyTorch alone, DDP or torchft; for bench.pages.network.

python -m bench.pages.dense FOLDER OUT OPTIONS        OPTIONS: those of `Options`, as JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from apps.mlp import pictures
from malt.models.networks import step_at

Epochs = list[dict[str, float]]


@dataclass(frozen=True)
class Options:
    """What one run does."""

    way: str
    """"torch", "ddp", or "localsgd": that of torchft, which finds its lighthouse at TORCHFT_LIGHTHOUSE."""
    batch: int
    """Pictures of a batch of one process."""
    step: float
    """The largest step size, which falls to 0 in a line."""
    warm_up: float = 0.0
    """The share of the training in which the step size rises to it, in a line."""
    optimizer: str = "momentum"
    epochs: int = 5
    every: int = 50
    """Batches between two exchanges of LocalSGD."""
    threads: int = 1
    seed: int = 0


def network(pixels: int) -> nn.Module:
    """The network of apps.mlp, with its first weights' distribution."""
    layers = nn.Linear(pixels, 128), nn.Linear(128, 10)
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def _tensors(some: pictures.Pictures) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(some.pixels.astype(np.float32) / np.float32(some.white)), torch.from_numpy(some.labels)


def optimizer_of(options: Options, model: nn.Module) -> torch.optim.Optimizer:
    """PyTorch's optimizer, in its fused form, which takes the least time."""
    if options.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=options.step, fused=True)
    return torch.optim.SGD(model.parameters(), lr=options.step, momentum=0.9, fused=True)


def train(options: Options, folder: str, rank: int, ranks: int, model: nn.Module, optimizer: Any) -> Epochs:
    """Train, and return after each epoch: seconds of training so far, and the accuracy on the test pictures."""
    train, test = pictures.load(folder, 0)
    (x, y), (test_x, test_y) = _tensors(train), _tensors(test)
    mine = np.random.default_rng(0).permutation(len(y))[rank::ranks]
    x, y = x[mine], y[mine]
    if options.way != "torch":
        torch.distributed.barrier()
    batches, seconds, done, found = -(-len(y) // options.batch), 0.0, 0, []
    for _ in range(options.epochs):
        start = time.perf_counter()
        for rows in torch.randperm(len(y)).split(options.batch):
            optimizer.param_groups[0]["lr"] = step_at(options.step, done / (batches * options.epochs), options.warm_up)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            done += 1
        seconds += time.perf_counter() - start
        with torch.no_grad():
            found.append(
                {"seconds": seconds, "test_accuracy": float((model(test_x).argmax(1) == test_y).double().mean())}
            )
    return found


def _manager(model: nn.Module, rank: int) -> Any:
    """torchft's manager of a group of one process."""
    from torchft import Manager, ProcessGroupGloo

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timedelta(seconds=30)), min_replica_size=2, use_async_quorum=False, rank=0, world_size=1,
        load_state_dict=model.load_state_dict, state_dict=model.state_dict, replica_id=str(rank),
        store_addr="127.0.0.1", store_port=store.port,
    )  # fmt: skip
    manager.own_store = store  # the manager keeps its address alone
    return manager


def run(options: Options, folder: str, rank: int, ranks: int) -> Epochs:
    """Train as this process of so many."""
    model: nn.Module = network(784)
    torch.manual_seed(options.seed + 1000 * rank)  # other orders; DDP and torchft send the first one's weights
    if options.way == "torch":
        return train(options, folder, rank, ranks, model, optimizer_of(options, model))
    torch.distributed.init_process_group("gloo")
    if options.way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
        return train(options, folder, rank, ranks, model, optimizer_of(options, model))
    from torchft.local_sgd import LocalSGD

    optimizer, manager = optimizer_of(options, model), _manager(model, rank)
    with LocalSGD(manager, model, optimizer, options.every):
        return train(options, folder, rank, ranks, model, optimizer)


def main() -> None:
    folder, out, words = sys.argv[1:]
    options = Options(**json.loads(words))
    rank, ranks = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    found = run(options, folder, rank, ranks)
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # threads of torchft would keep the process


if __name__ == "__main__":
    main()
