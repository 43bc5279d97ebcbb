"""A process group of torch.distributed in the same program: what it averages, malt.torch would average once more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as torch_distributed

from malt.session import session

_SEEN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE",
         "MV2_COMM_WORLD_SIZE")  # fmt: skip
"""The variables by which Accelerate and Lightning see that a launcher has started several processes."""


@contextmanager
def alone() -> Iterator[None]:
    """Within the block, other libraries take this process for the only one. Collective, as malt.init.

        with malt.torch.alone():
            accelerator = Accelerator(cpu=True)

    The variables of mpiexec and torchrun are hidden, by which Accelerate would start a process group of
    torch.distributed, and come back at the end. MALT reads them before.
    """
    session.world()
    hidden = {name: os.environ.pop(name) for name in _SEEN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def check(average: str, ranks: int, is_meant: bool) -> None:
    """Check that no process group averages what `ranks` ranks are to average. Local.

    `average`: as that of malt.torch.Optimizer. `is_meant`: whether a group is there for something else. ValueError,
    with the remedy: there is one of several processes.
    """
    if is_meant or ranks == 1 or not torch_distributed.is_available() or not torch_distributed.is_initialized():
        return
    if (size := torch_distributed.get_world_size()) > 1:
        again = "them a second time" if average == "gradient" else "the models of the same ranks on top"
        raise ValueError(
            f"torch.distributed has a process group of {size} processes, in which DistributedDataParallel averages "
            f"gradients; malt.torch would average {again}: leave one of them out (init_process_group, or malt.torch). "
            "Accelerator(cpu=True) and TrainingArguments(use_cpu=True) start a group, too, except within "
            "malt.torch.alone(). Pass distributed=True if the group averages neither"
        )
