"""`malt.torch.Optimizer`: an optimizer of torch whose model ranks exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dstorm import ClosedError
from dstorm.words import shown
from malt.session import session
from malt.session.replica.consensus import call_of, partners
from malt.session.replica.context_manager import FinishOnExit
from malt.session.replica.options import bounds
from malt.session.replica.replica import Replica
from malt.session.replica.totals import ReplicaStatistics, replica_statistics
from malt.session.world import agreement
from malt.session.world.means import mean
from malt.torch import process_groups
from malt.torch.bypasses import Bypasses
from malt.torch.contents import Contents
from malt.torch.gradients import Gradients
from malt.torch.sampler import note_step
from malt.torch.tensors import Tensors, broadcast, packed, sum_of, unpack
from vol import Vector, arguments

_KEY = "malt"
"""The entry of a state dict that the optimizer of torch does not have."""


class Optimizer(FinishOnExit, torch.optim.Optimizer):
    """Wraps the PyTorch `optimizer` and exchanges `model` between ranks at intervals. Collective.

        optimizer = malt.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, every=50)
        for x, y in batches: ...
            optimizer.step()
        optimizer.finish()

    All ranks start from the model of rank 0, with all its parameters and buffers. The parameters that `optimizer`
    trains are exchanged, those shared by several layers once; frozen parameters are not. Floating-point buffers are
    averaged; integer, complex and sparse buffers stay each rank's own. The module may rebind buffers: they are looked
    up at each exchange. Buffers outside the state dict may also change their shapes, and are then left alone.
    Contiguous float32 and float64 tensors on the CPU are not copied; those of fewer bits are exchanged as float32
    copies, and CUDA tensors through pinned memory. The state of `optimizer` stays each rank's own.

    `average`: "model" or "delta", with `every`, `epoch`, `graph`, `sync`, `outer`, `wire`, `top` and `fragments` as in
    malt.Replica; `every` and `epoch` count steps. By default, under "asp" and "ssp:S", an exchange of parameters and
    buffers costs a tenth of the training between two exchanges. "gradient": all ranks average their gradients before
    each step, and make the same steps. CPU gradients are sent during the backward pass; if the loop changes them after
    it, all are sent at the step from then on. `sync`: by default "asp"; "bsp" for gradients, `wire` and `top`.

    `check_finite`: messages with NaN or infinity are refused, as in malt.Replica. A rank with such gradients counts as
    one without gradients at that step.

    `distributed`: whether torch.distributed may have a process group beside it, as for metrics. Otherwise that is an
    error: DistributedDataParallel would average gradients there, too.

    `step`: the name of another method of `optimizer` that ends a step, such as "second_step" of sharpness-aware
    minimization. It then acts as `step`. Without it, a method that changes parameters is an error, because ranks would
    diverge.

    It is an optimizer itself, with the parameter groups, state and attributes of `optimizer`, for learning rate
    schedulers and checkpoints. `optimizer` can load its `state_dict`, too.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs; a tensor is on another device.
    MemoryError, on all ranks: the vectors do not fit.
    """

    _step_supports_amp_scaling = False
    """For GradScaler, which would give the scale to this object, and not to `optimizer`: it divides gradients first."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, every: Any = None, average: str = "model",
        graph: Any = "auto", sync: str | None = None, *, outer: Callable[..., None] | None = None,
        wire: str | None = None, top: float | None = None, fragments: int = 1, check_finite: bool = False,
        step: str | None = None, name: str | None = None, epoch: int | None = None, distributed: bool = False,
    ) -> None:  # fmt: skip
        self.optimizer = optimizer
        """The optimizer of torch."""
        self._model, self._average, self._distributed = model, average, distributed
        made = session.world().replicas_made
        self._name = f"malt.torch.Optimizer {made + 1}" if name is None else name
        if sync is None:
            sync = "bsp" if average == "gradient" or wire is not None or top is not None else "asp"
        self._options = dict(every=every, epoch=epoch, graph=graph, sync=sync, check_finite=check_finite)
        self._changed = dict(average=average, outer=outer, wire=wire, top=top, fragments=fragments)
        self._replicas: list[tuple[Replica, Tensors]] = []
        self._gradients: Gradients | None = None
        self._step = step
        self._bypasses = Bypasses(optimizer)
        self._open = False
        self.restart()

    def restart(self) -> None:
        """Start again from the model of rank 0, with the parameters that are trained now. Collective.

        Call it after a change of the model: parameters that were unfrozen, pruned or parametrized, a new buffer,
        another dtype. To keep what all ranks have trained, call `finish` before the change. `add_param_group` and
        `load_state_dict` call it themselves.

        ValueError, MemoryError: as the constructor.
        """
        self.close()
        transport = session.world().transport

        def check() -> tuple[Contents, dict[str, Any]]:
            if isinstance(self.optimizer, Optimizer):
                raise TypeError("optimizer is a malt.torch.Optimizer already")
            arguments.truth("check_finite", self._options["check_finite"])
            _check_step(self._step, self.optimizer)
            process_groups.check(self._average, transport.size, self._distributed)
            contents = Contents(self.optimizer, self._model)
            if self._average == "gradient":
                _check_gradients(**self._options, **self._changed)
            return contents, {"name": self._name, "average": self._average, "tensors": contents.described}

        comes_back = self._comes_back()
        contents, _ = check() if comes_back else agreement.agree(transport, "malt.torch.Optimizer", check)
        self._contents, self._open, self._has_stepped = contents, True, False
        if self._step is None:
            self._bypasses.refuse_steps()
        if not comes_back:
            self._broadcast(contents.left)
        if self._average == "gradient":
            self._broadcast({**contents.trained, **contents.buffers})
            self._gradients = Gradients(transport, contents.trained, self._name, self._options["check_finite"])
            return

        def trained() -> Mapping[str, Tensor]:
            contents.look_up()  # before the buffers, which are exchanged next
            return contents.trained

        self._add(trained, self._name, **self._changed)
        if contents.buffers:
            (parameters, _), *_ = self._replicas
            every = parameters.statistics().every
            self._add(lambda: contents.buffers, f"{self._name}, buffers", every=every)
            if self._is_together:
                self._replicas[-1][0].follow(parameters)
        self._give_left(comes_back)

    def _comes_back(self) -> bool:
        """Return whether this rank rejoins others that have made this optimizer, and exchange models. One-sided."""
        world = session.world()
        return self._average != "gradient" and world.newcomer is not None and world.newcomer.has_replica(world)

    def _give_left(self, comes_back: bool) -> None:
        """Have ranks that come back get what is not exchanged; take it, if this one has. Local."""
        if not (left := self._contents.left):
            return
        given = self.vectors[-1].accompany(lambda: {name: packed(one) for name, one in left.items()})
        if comes_back and given is not None:
            for name, one in left.items():
                unpack(given[name], one)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step of the PyTorch optimizer, and exchange if it is due. Return what its step returns. One-sided.

        Call it once for any number of backward passes, as without malt.

        ValueError: the model has changed in more than values and buffers; a closure, with average="gradient".
        ClosedError: the call follows finish, close or malt.finalize.
        """
        if closure is None:
            return self._take("step")
        if self._gradients is not None:
            why = "a closure computes gradients within a step"
            raise ValueError(f'{why}: it cannot be combined with average="gradient"')
        return self._take("step", closure)

    def agree(self) -> None:
        """Replace parameters and buffers with the means over all ranks, as `finish` does, and continue. Collective.

        Like malt.Replica.agree, it is for evaluation and checkpoints. The state of the optimizer stays each rank's own.
        A rank that waits in `finish` is left out. With average="gradient" call it after the same number of steps on all
        ranks.

        ClosedError: the call follows finish, close or malt.finalize. Other errors: as of malt.Replica.agree.
        """
        if not self._open:
            raise ClosedError(f"{self._name}.agree: finish or close was called before: call restart to continue")
        self._take_mean(ends=False)

    def finish(self) -> None:
        """Replace parameters and buffers with the means over all ranks, the same bits on each, and end. Collective.

        Means are as in malt.Replica.finish. Integers and complex numbers are those of the lowest rank. Frozen
        parameters are averaged if ranks have changed them. A second call does nothing.

        ClosedError, DeadlinePassed, ValueError: as malt.Replica.finish.
        """
        if not self._open:
            return
        self._close_vectors()
        while not self._take_mean(ends=True):
            pass  # the others agree, and go on
        self._open = False
        self._bypasses.accept_steps()

    def close(self) -> None:
        """End without a common model; peers no longer wait for this rank. One-sided."""
        self._close_vectors()
        self._replicas, self._gradients, self._open = [], None, False
        self._bypasses.accept_steps()

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange parameters, gradients and buffers: for their statistics. Local."""
        gradients = [] if self._gradients is None else self._gradients.vectors
        return gradients + [one for replica, _ in self._replicas for one in replica.vectors]

    def statistics(self) -> ReplicaStatistics:
        """Return the totals of all vectors, and the current interval. Local; any thread may call it at any time."""
        every = self._replicas[0][0].statistics().every if self._replicas else 1
        return replica_statistics(self.vectors, every)

    # -- what an optimizer has --------------------------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of the PyTorch optimizer."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        """The state of the PyTorch optimizer."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """The default options of the PyTorch optimizer."""
        return self.optimizer.defaults

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        found = getattr(self.optimizer, name)
        if name == self._step:
            return partial(self._take, name)
        if self._step is None and getattr(found, "__self__", None) is self.optimizer:
            return self._bypasses.watched(found, self._contents.trained.values())
        return found

    def __repr__(self) -> str:
        return f"malt.torch.{self.optimizer!r}"

    def __getstate__(self) -> Any:
        raise TypeError("a malt.torch.Optimizer cannot be copied or pickled: save its state_dict() in a checkpoint")

    def zero_grad(self, *words: Any, **options: Any) -> None:
        """Set the gradients to zero, as the PyTorch optimizer does. Local."""
        self.optimizer.zero_grad(*words, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group to the PyTorch optimizer, and `restart`. Collective."""
        self.optimizer.add_param_group(param_group)
        self.restart()

    def state_dict(self) -> dict[str, Any]:
        """Return the state dict of the PyTorch optimizer, with the state of `outer`. Local."""
        outer = [torch.from_numpy(array.copy()) for array in self._outer_state()]
        return {**self.optimizer.state_dict(), _KEY: {"outer": outer}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict, or one of the PyTorch optimizer, and `restart`. Load the model first. Collective.

        ValueError: the state of `outer` does not fit.
        """
        plain = dict(state_dict)
        saved = plain.pop(_KEY, {"outer": []})["outer"]
        self.optimizer.load_state_dict(plain)
        self.restart()
        state = self._outer_state()
        if saved and [one.numel() for one in saved] != [array.size for array in state]:
            raise ValueError("the state of outer= does not match: it is of another outer step, or of another model")
        for array, one in zip(state, saved, strict=False):
            array[:] = one.numpy()

    # -- private ----------------------------------------------------------------------------------------------

    @torch.compiler.disable  # for torch.compile of a step: it would replace arrays by its own
    def _take(self, method: str, *words: Any, **options: Any) -> Any:
        """Take a step by this method of the optimizer of torch, and exchange if that is due."""
        if not self._open:
            raise ClosedError(f"{self._name}.{method}: finish or close was called before: call restart to continue")
        self._contents.check()
        if self._gradients is not None:
            self._contents.look_up()
            self._gradients.average()
        self._has_stepped = True
        with self._bypasses.step():
            result = getattr(self.optimizer, method)(*words, **options)
        exchanged = [replica.step() for replica, _ in self._replicas]  # the parameters first
        for (_, tensors), is_new in zip(self._replicas, exchanged, strict=True):
            if is_new or (exchanged[0] and self._is_together):
                tensors.write()
        note_step(session.world())
        return result

    def _add(self, look_up: Callable[[], Mapping[str, Tensor]], name: str, **options: Any) -> None:
        tensors = Tensors(look_up)
        replica = Replica(tensors.arrays, name=name, **{**self._options, **options})
        replica.trust()
        tensors.write()
        self._replicas.append((replica, tensors))

    @property
    def _is_together(self) -> bool:
        """True if buffers are exchanged with the parameters: not where only a part of these is exchanged at a time."""
        return bool(self._changed["fragments"] == 1)

    def _outer_state(self) -> list[Any]:
        return self._replicas[0][0].outer_state if self._replicas else []

    def _broadcast(self, some: Mapping[str, Tensor], root: int | None = None) -> None:
        transport = session.world().transport
        with transport.calling(self._name):
            for one in some.values():
                broadcast(transport, one, root)

    def _close_vectors(self) -> None:
        """Close all vectors: peers no longer wait for this rank. One-sided."""
        for replica, _ in self._replicas:
            replica.close()
        if self._gradients is not None:
            self._gradients.close()

    def _take_mean(self, ends: bool) -> bool:
        """Take the mean, to finish if it `ends`, else to agree; return whether all ranks finish. Collective.

        The ranks make the same calls, whether they finish or agree. One that finishes while others agree gives copies.
        """
        is_over = True
        for replica, tensors in self._replicas:
            is_over = replica.take_mean(ends)
            if is_over == ends:
                tensors.write()
        with session.world().transport.calling(call_of(self._name)):
            is_over, reports = partners(session.world(), self._name, ends, self._looked_up)
            counts = self._has_stepped if is_over == ends else None
            if self._gradients is not None:
                self._mean({**self._contents.trained, **self._contents.buffers}, counts)
            self._share_left(None if is_over else min(reports), list(reports), counts)
        return is_over

    def _looked_up(self) -> Mapping[str, Any]:
        """Look up the tensors where no Replica has done so; describe this object."""
        if self._gradients is not None:
            self._contents.look_up()
        return {"name": self._name}

    def _mean(self, some: Mapping[str, Tensor], counts: bool | None) -> None:
        """Replace tensors by their means. Collective. `counts`: as for malt.session.world.means.mean."""
        some = some if counts is not None else _copies(some)
        tensors, transport = Tensors(lambda: some), session.world().transport
        arrays, finite = list(tensors.arrays().values()), self._options["check_finite"]
        mean(transport, arrays, counts=counts, check_finite=finite, else_all=True)
        tensors.write()

    def _share_left(self, root: int | None, ranks: Sequence[int], counts: bool | None) -> None:
        """Give `ranks` the same tensors of those that were not exchanged. Collective.

        They are those of `root`, None: of the lowest rank. Frozen ones that ranks have changed are averaged. `counts`:
        as for malt.session.world.means.mean.
        """
        left = self._contents.left
        whole = {name: one for name, one in left.items() if not one.is_floating_point()}
        self._broadcast(whole if counts is not None else _copies(whole), root)
        frozen = {name: one for name, one in left.items() if one.is_floating_point()}
        reports = agreement.exchange(session.world().transport, [sum_of(one) for one in frozen.values()])
        sums = [reports[rank] for rank in ranks if rank in reports]
        changed = [name for name, *those in zip(frozen, *sums, strict=True) if len(set(those)) > 1]
        if changed:
            self._mean({name: frozen[name] for name in changed}, counts)


def _copies(some: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in some.items()}


def _check_step(name: Any, optimizer: torch.optim.Optimizer) -> None:
    """Check that `name` is that of a method of `optimizer`, or None. ValueError: no step would be exchanged."""
    if name is not None and not (isinstance(name, str) and callable(getattr(optimizer, name, None))):
        raise ValueError(f"step must be the name of a method of {type(optimizer).__name__}, got {shown(name)}")


def _check_gradients(every: Any, epoch: Any, graph: Any, sync: Any, check_finite: Any, **changed: Any) -> None:
    """Check the arguments with average="gradient". ValueError: they do not go with it."""
    if bounds(every, "bsp") != (1, 1):
        raise ValueError('average="gradient" exchanges at every step: to exchange less often, call step less often')
    if graph not in ("auto", "all") or sync != "bsp":
        raise ValueError('average="gradient" is for graph="all" and sync="bsp": models would differ')
    for name in ("outer", "wire", "top"):
        if changed[name] is not None:
            raise ValueError(f'{name} is for changes: average="delta"')
    if changed["fragments"] != 1:
        raise ValueError('average="gradient" exchanges all at every step, without fragments')
