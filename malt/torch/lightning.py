"""`malt.torch.lightning.Callback`: lightning.Trainer on several ranks. It needs the extra `lightning`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

try:
    from lightning.pytorch import Callback as LightningCallback
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.utilities.rank_zero import rank_zero_only
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "lightning":
        raise
    remedy = "malt.torch.lightning needs Lightning: pip install '.[lightning]' in the checkout"
    raise ModuleNotFoundError(remedy, name="lightning") from None

from malt.session import session
from malt.session.collectives import allgather, barrier
from malt.torch.optimizer import Optimizer
from malt.watch import reports

__all__ = ["Callback"]


class Callback(LightningCallback):  # type: ignore[misc, unused-ignore]
    """Makes lightning.Trainer train one model on all ranks: it exchanges the model, with one log and one checkpoint.

    Collective.

        sampler = malt.torch.Sampler(data)
        loader = DataLoader(data, 32, sampler=sampler)
        trainer = Trainer(accelerator="cpu", devices=1, callbacks=[malt.torch.lightning.Callback()])
        trainer.fit(model, loader)

    `options`: those of malt.torch.Optimizer, such as `every` and `average`.

    Lightning takes every rank for rank zero. The callback tells it the rank, from its creation on: create it before
    the Trainer. Then only the lowest rank logs, shows its progress and writes checkpoints.

    All ranks begin with the model of rank 0. Lightning passes the number of the epoch to the Sampler. At the end of an
    epoch, and before each validation during training, all ranks take the mean of their models. Each validates it on
    all rows of its loader, with the same result, and early stopping on one rank stops all. A checkpoint between two
    validations has the model of the lowest rank. At the end all have one model. malt.report shows the metrics of all.

    Ranks need the same number of batches per epoch if a validation or checkpoint is due within it, and with
    average="gradient" and sync="bsp".

    ValueError, when training begins: there are several optimizers, or devices of one Trainer; or an error of
    malt.torch.Optimizer.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._optimizer: Optimizer | None = None
        _tell_rank()

    @property
    def optimizer(self) -> Optimizer | None:
        """The malt.torch.Optimizer, once the training has begun. Local."""
        return self._optimizer

    # -- what Trainer calls -----------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Tell the strategy of the Trainer its rank. Local."""
        _tell_rank()
        strategy = trainer.strategy
        if type(strategy) is SingleDeviceStrategy:
            strategy.__class__ = _OfRank
            strategy.global_rank = session.rank()
        elif not isinstance(strategy, _OfRank):
            raise ValueError(
                f"{type(strategy).__name__} starts processes of its own beside malt's ranks: Trainer(devices=1), "
                'strategy="auto"'
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the PyTorch optimizer by a malt.torch.Optimizer. Collective."""
        if len(trainer.optimizers) != 1:
            raise ValueError(f"malt.torch.lightning.Callback is for one optimizer, not {len(trainer.optimizers)}")
        self._optimizer = _AfterClosure(trainer.optimizers[0], pl_module, **self._options)
        trainer.strategy.optimizers = [self._optimizer]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the mean of all ranks during training. Collective."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._exchanged.agree()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the mean of all ranks, and report the metrics of this one. Collective."""
        self._exchanged.agree()
        metrics = {name: float(one) for name, one in trainer.callback_metrics.items()}
        epochs = {} if (trainer.max_epochs or -1) < 0 else {"epochs": trainer.max_epochs}
        reports.report(**{"step": trainer.global_step, "epoch": trainer.current_epoch + 1, **epochs, **metrics})

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give all ranks one model. Collective."""
        self._exchanged.finish()
        trainer.strategy.optimizers = [self._exchanged.optimizer]

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _exchanged(self) -> Optimizer:
        assert self._optimizer is not None
        return self._optimizer


class _AfterClosure(Optimizer):
    """One whose gradients are averaged after the closure, which Lightning always gives, and calls once a step."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As of malt.torch.Optimizer. With average="gradient" the closure is called first."""
        if closure is None or self._gradients is None:
            return super().step(closure)
        with torch.enable_grad():
            result = closure()
        super().step()
        return result


class _OfRank(SingleDeviceStrategy):  # type: ignore[misc, unused-ignore]
    """The strategy of one device, of one of several ranks. Its calls are made by all of them."""

    @property
    def is_global_zero(self) -> bool:
        """True if this rank logs and writes."""
        return session.is_lowest()

    def barrier(self, *words: Any, **options: Any) -> None:
        """Return once all ranks have called it: none reads a checkpoint that is being written. Collective."""
        barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The value of the lowest rank: the place of a checkpoint, which others would see in use. Collective."""
        return next(one for one in _of_all(obj) if one is not None)[0]

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all ranks, or one of them, have decided so. Collective."""
        decisions = [one[0] for one in _of_all(bool(decision)) if one is not None]
        return min(decisions) if all else max(decisions)


def _of_all(value: Any) -> list[Any]:
    """The values of all ranks, in a list each; None for a rank that has failed. Collective."""
    return allgather([value])


def _tell_rank() -> None:
    """Have Lightning log on the lowest rank alone. Collective, as malt.init, the first time. Else local."""
    rank_zero_only.rank = 0 if session.is_lowest() else max(session.rank(), 1)
