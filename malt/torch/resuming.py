"""`malt.torch.state`: what a checkpoint holds of a training with torch, in common and by rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from malt.session.checkpoints.stateful import as_tensors
from malt.torch.optimizer import Optimizer


def state(
    model: torch.nn.Module, optimizer: Optimizer, sampler: Any = None, scheduler: Any = None, **more: Any
) -> dict[str, Any]:  # fmt: skip
    """Return the state of a training, for malt.Checkpoint.save and restore. Local: nothing is read.

        checkpoint = malt.Checkpoint("net.ckpt", every_s=600)
        found = checkpoint.restore(**malt.torch.state(model, optimizer, sampler, scheduler))
        for epoch in range(sampler.epoch, EPOCHS):
            sampler.set_epoch(epoch)
            for x, y in sampler.batches(loader):
                ...
                optimizer.step()
                checkpoint.save(**malt.torch.state(model, optimizer, sampler, scheduler))
            scheduler.step()

    In common: `model`, of the lowest rank; `sampler`; and `more` by name, such as numbers, which restore returns, and
    objects of torch. By rank: what the rank has of the model, of the exchange, of the optimizer of torch and of
    `scheduler`, and generators of random numbers. On another number of ranks all begin with the common model; the state
    of the optimizer and of the scheduler are dealt: each rank has that of another one.

    TypeError: `optimizer` is no malt.torch.Optimizer.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a malt.torch.Optimizer, got {type(optimizer).__name__}")
    common = {"model": model, **({} if sampler is None else {"sampler": sampler}), **more}
    mine: dict[str, Any] = {"exchange": _Exchange(optimizer), "optimizer": _Dealt(optimizer.optimizer)}
    if scheduler is not None:
        mine["scheduler"] = _Dealt(scheduler)
    return {"state": common, "mine": mine}


class _Dealt:
    """An object of torch that each rank has its own of, and whose state fits any rank. Local."""

    is_dealt = True

    def __init__(self, one: Any) -> None:
        self._one = one

    def state_dict(self) -> Any:
        """The state of the object."""
        return self._one.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Give the object this state."""
        self._one.load_state_dict(as_tensors(state))


class _Exchange:
    """The parameters that `optimizer` exchanges, and the rest of the model's state. Collective, like a Replica."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def is_in_step(self) -> bool:
        """True if ranks exchange together."""
        return all(replica.is_in_step for replica, _ in self._optimizer._replicas)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that this rank resumes from. Ranks that do not exchange together take the mean first."""
        optimizer = self._optimizer
        if not self.is_in_step:
            optimizer.agree()
        replicas = [replica.kept() for replica, _ in optimizer._replicas]
        return {"replicas": replicas, "left": self._left(), "has_stepped": optimizer._has_stepped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from that. ValueError, on all ranks: it is of another model, or of another exchange."""
        optimizer, contents = self._optimizer, self._optimizer._contents
        every = {**contents.trained, **contents.buffers, **contents.left}
        kept, needed = state["left"], self._left().keys() - self._apart().keys()
        if len(state["replicas"]) != len(optimizer._replicas) or not needed <= kept.keys() <= every.keys():
            raise ValueError("the state of the exchange does not match: it is of another model or another average")
        for (replica, tensors), one in zip(optimizer._replicas, state["replicas"], strict=True):
            replica.load_state_dict(one)
            tensors.write()
        for name, one in kept.items():
            every[name].detach().copy_(torch.from_numpy(one))
        optimizer._has_stepped = bool(state["has_stepped"])

    def begin_anew(self) -> None:
        """Begin with the model of rank 0. The vectors stay: a rank that rejoins later makes them, and no others."""
        optimizer, contents = self._optimizer, self._optimizer._contents
        contents.look_up()
        exchanged = {} if optimizer._replicas else {**contents.trained, **contents.buffers}
        optimizer._broadcast({**contents.left, **exchanged})
        for replica, tensors in optimizer._replicas:
            replica.begin_anew()
            tensors.write()

    def _left(self) -> dict[str, Tensor]:
        """The tensors that no Replica has as they are now, by name."""
        contents = self._optimizer._contents
        contents.look_up()
        exchanged = {} if self._optimizer._replicas else {**contents.trained, **contents.buffers}
        return {name: one.detach() for name, one in {**exchanged, **contents.left, **self._apart()}.items()}

    def _apart(self) -> dict[str, Tensor]:
        """Those of them that are exchanged, by way of other memory."""
        return {name: one for _, tensors in self._optimizer._replicas for name, one in tensors.apart().items()}
