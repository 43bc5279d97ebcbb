"""A process group of torch.distributed in the same program: what it averages, malt.torch would average once more."""

from __future__ import annotations

import torch.distributed as torch_distributed


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
            f"gradients; malt.torch would average {again}: leave one of them out (init_process_group, which "
            "Accelerator(cpu=True) calls, too, or malt.torch); distributed=True says that the group averages neither"
        )
