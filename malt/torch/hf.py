"""`malt.torch.hf.Callback`: transformers.Trainer on several ranks. It needs the extra `hf`."""

from __future__ import annotations

from numbers import Real
from typing import Any

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    remedy = "malt.torch.hf needs transformers and Accelerate: pip install '.[hf]' in the checkout"
    raise ModuleNotFoundError(remedy, name="transformers") from None

from malt.session import session
from malt.session.seeds import seed
from malt.torch.optimizer import Optimizer
from malt.watch import reports

__all__ = ["Callback"]


class Callback(TrainerCallback):
    """Makes transformers.Trainer train one model on all ranks: it exchanges the model, with one log and one checkpoint.

        with malt.torch.alone():
            args = TrainingArguments("out", use_cpu=True)
        rows = Subset(data, malt.shard(len(data)))
        Trainer(model, args, train_dataset=rows, callbacks=[malt.torch.hf.Callback()]).train()

    `options`: those of malt.torch.Optimizer, such as `every` and `average`.

    All ranks begin with the model of rank 0, and draw their own random numbers, seeded by args.seed. Each Trainer
    iterates over the rows that it was given. Before it evaluates or saves, all ranks take the mean of their models;
    each evaluates it on all rows of eval_dataset, with the same result. So early stopping stops all ranks. At the end
    all have one model: the best one, with load_best_model_at_end. Only the lowest rank logs and saves. malt.report
    shows what the others would log.

    Ranks evaluate and save at the same times if they count epochs. If they count steps they need the same number of
    batches per epoch, as they do with average="gradient" and sync="bsp".

    ValueError, when training begins: a GradScaler is in use; or an error of malt.torch.Optimizer.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._optimizer: Optimizer | None = None
        self._accelerated: Any = None
        self._saves_model_only: bool | None = None

    @property
    def optimizer(self) -> Optimizer | None:
        """The malt.torch.Optimizer, once the training has begun. Local."""
        return self._optimizer

    # -- what Trainer calls -----------------------------------------------------------------------------------

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Tell Trainer its rank. Collective, as malt.init."""
        self._tell_rank(args, state)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any = None,
        optimizer: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        """Replace the PyTorch optimizer by a malt.torch.Optimizer. Collective."""
        self._tell_rank(args, state)
        if getattr(optimizer, "scaler", None) is not None:
            raise ValueError("fp16=True has a GradScaler, which would step beside malt.torch: use bf16=True")
        self._accelerated = optimizer
        self._optimizer = optimizer.optimizer = Optimizer(optimizer.optimizer, model, **self._options)
        seed(args.seed)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the mean of all ranks if Trainer is to evaluate, to save or to stop. Otherwise local."""
        if control.should_training_stop:
            self._exchanged.finish()
        elif control.should_evaluate or control.should_save:
            self._tell_rank(args, state)
            self._exchanged.agree()

    on_epoch_end = on_step_end

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Forget, on ranks that save nothing, a checkpoint that is perhaps being written. Local."""
        self._tell_rank(args, state)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:  # fmt: skip
        """Report the numbers of this rank, without truth values, texts and lists of its metrics. Local."""
        found = {name: one for name, one in (logs or {}).items() if isinstance(one, Real)}
        numbers = {name: one for name, one in found.items() if not isinstance(one, bool)}
        reports.report(**{"step": state.global_step, "epochs": state.num_train_epochs, **numbers})

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Give all ranks one model: the best, if Trainer has loaded that. Collective."""
        self._exchanged.finish()
        if args.load_best_model_at_end:
            self._exchanged.restart()
            self._exchanged.finish()
        self._accelerated.optimizer = self._exchanged.optimizer

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _exchanged(self) -> Optimizer:
        assert self._optimizer is not None
        return self._optimizer

    def _tell_rank(self, args: TrainingArguments, state: TrainerState) -> None:
        """Have Trainer log and save on the lowest rank alone. Collective, as malt.init, the first time. Else local."""
        is_lowest = session.is_lowest()
        distributed: Any = args.distributed_state
        distributed.process_index = distributed.local_process_index = 0 if is_lowest else max(session.rank(), 1)
        if self._saves_model_only is None:
            self._saves_model_only = args.save_only_model
        args.save_only_model = self._saves_model_only or not is_lowest  # other ranks would write their generators
        state.is_world_process_zero = state.is_local_process_zero = is_lowest
        if not is_lowest:
            state.best_model_checkpoint = None  # it would be read while it is written
