"""`malt.torch.Optimizer`: an optimizer of torch whose model ranks exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dstorm import ClosedError
from malt.replica import consensus
from malt.replica.finishing import Finishing
from malt.replica.replica import Replica
from malt.session import session
from malt.torch.gradients import Gradients
from malt.torch.tensors import Tensors
from malt.world import agreement
from vol import Vector, arguments

_KEY = "malt"
"""The entry of a state dict that the optimizer of torch does not have."""


class Optimizer(Finishing, torch.optim.Optimizer):
    """`optimizer`, of torch, around which ranks exchange `model` every so many steps. Collective.

        optimizer = malt.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, every=50)
        for x, y in batches: ...
            optimizer.step()
        optimizer.finish()

    All ranks start from the model of rank 0, with all its parameters and buffers. Parameters that `optimizer` trains
    are exchanged. A parameter that is shared by layers is one. Frozen parameters are not exchanged. Buffers of
    floating-point numbers are averaged; those of integers stay each rank's own, and end as those of the lowest rank.
    Contiguous tensors of float32 and float64 on the CPU are not copied; float16 and bfloat16 are exchanged as float32,
    by way of copies, and tensors of CUDA by way of pinned memory. The state of `optimizer` is each rank's own.

    `average`: "model", "delta", with `every`, `graph`, `sync`, `outer`, `wire`, `top`, `fragments` as malt.Replica has
    them; `every` counts steps. "gradient": all ranks average their gradients before each step, and take the same steps.
    Gradients on the CPU travel during the backward pass. Where the loop changes them after it, all are sent at the step
    from then on. `sync`: by default "asp"; "bsp" for gradients, `wire` and `top`.

    It is an optimizer itself, with the parameter groups, state and attributes of `optimizer`, for schedulers of step
    sizes and checkpoints. Its `state_dict` can be loaded by `optimizer`, too.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs; a tensor is on another device.
    MemoryError, on all ranks: the vectors do not fit.
    """

    _step_supports_amp_scaling = False
    """For GradScaler, which would give the scale to this object, and not to `optimizer`: it divides gradients first."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: torch.nn.Module, every: int = 1, average: str = "model",
        graph: Any = "auto", sync: str | None = None, *, outer: Callable[..., None] | None = None,
        wire: str | None = None, top: float | None = None, fragments: int = 1,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.optimizer = optimizer
        """The optimizer of torch."""
        self._model, self._average = model, average
        made = session.world().replicas_made
        self._name = f"malt.torch.Optimizer {made + 1}" if name is None else name
        if sync is None:
            sync = "bsp" if average == "gradient" or wire is not None or top is not None else "asp"
        self._options = dict(every=every, graph=graph, sync=sync)
        self._changed = dict(average=average, outer=outer, wire=wire, top=top, fragments=fragments)
        self._replicas: list[tuple[Replica, Tensors]] = []
        self._gradients: Gradients | None = None
        self._has_stepped = self._open = False
        self.restart()

    def restart(self) -> None:
        """Begin anew with the model of rank 0, and with the parameters that are trained now. Collective.

        To be called after parameters were frozen or set free. `add_param_group` and `load_state_dict` do so.

        ValueError, MemoryError: as the constructor.
        """
        self.close()
        transport = session.world().transport

        def check() -> tuple[_Split, dict[str, Any]]:
            split = _Split(self.optimizer, self._model)
            if self._average == "gradient":
                _check_gradients(**self._options, **self._changed)
            return split, {"name": self._name, "average": self._average, "tensors": split.described}

        split, _ = agreement.agree(transport, "malt.torch.Optimizer", check)
        self._split, self._open = split, True
        self._broadcast(split.left)
        if self._average == "gradient":
            self._broadcast({**split.trained, **split.buffers})
            self._gradients = Gradients(transport, split.trained, self._name)
            return
        self._add(split.trained, self._name, **self._changed)
        if split.buffers:
            self._add(split.buffers, f"{self._name}, buffers")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step of the optimizer of torch, and exchange if that is due. Return what its step returns. One-sided.

        Call it once for any number of backward passes, as without malt.

        ValueError: parameters are not those of the start, or of other dtypes, or one that was frozen is trained; a
        closure, with average="gradient". ClosedError: the call follows finish, close or malt.finalize.
        """
        if not self._open:
            raise ClosedError(f"{self._name}.step: it has left, by finish or close")
        self._split.check()
        if self._gradients is not None:
            if closure is not None:
                raise ValueError('a closure finds gradients within a step: it does not go with average="gradient"')
            self._gradients.average()
        self._has_stepped = True
        result = self.optimizer.step() if closure is None else self.optimizer.step(closure)
        for replica, tensors in self._replicas:
            if replica.step():
                tensors.write()
        return result

    def finish(self) -> None:
        """Replace parameters and buffers by the means of those of all ranks: the same bits on all. Collective.

        Means are as by malt.Replica.finish; integers are those of the lowest rank. A second call does nothing.

        ClosedError, DeadlinePassed, ValueError: as malt.Replica.finish.
        """
        if not self._open:
            return
        for replica, tensors in self._replicas:
            replica.finish()
            tensors.write()
        if self._gradients is not None:
            self._gradients.close()
            self._mean({**self._split.trained, **self._split.buffers})
        self._broadcast({name: one for name, one in self._split.left.items() if not one.is_floating_point()})
        self._open = False

    def close(self) -> None:
        """End the exchange without a common model: peers no longer wait for this rank. One-sided."""
        for replica, _ in self._replicas:
            replica.close()
        if self._gradients is not None:
            self._gradients.close()
        self._replicas, self._gradients, self._open = [], None, False

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange parameters, gradients and buffers: for their statistics. Local."""
        gradients = [] if self._gradients is None else self._gradients.vectors
        return gradients + [one for replica, _ in self._replicas for one in replica.vectors]

    # -- what an optimizer has --------------------------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of the optimizer of torch."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        """The state of the optimizer of torch."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """The options of the optimizer of torch."""
        return self.optimizer.defaults

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"malt.torch.{self.optimizer!r}"

    def __getstate__(self) -> Any:
        raise TypeError("a malt.torch.Optimizer is not copied or pickled: state_dict() is what a checkpoint holds")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer of torch. Local."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group to the optimizer of torch, and `restart`. Collective."""
        self.optimizer.add_param_group(param_group)
        self.restart()

    def state_dict(self) -> dict[str, Any]:
        """The state dict of the optimizer of torch, with the state of `outer`. Local."""
        outer = [torch.from_numpy(array.copy()) for array in self._outer_state()]
        return {**self.optimizer.state_dict(), _KEY: {"outer": outer}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict, also one of the optimizer of torch, and `restart`. Load the model first. Collective.

        ValueError: the state of `outer` does not fit.
        """
        plain = dict(state_dict)
        saved = plain.pop(_KEY, {"outer": []})["outer"]
        self.optimizer.load_state_dict(plain)
        self.restart()
        state = self._outer_state()
        if saved and [one.numel() for one in saved] != [array.size for array in state]:
            raise ValueError("the state of outer= does not fit: it is of another outer step, or of another model")
        for array, one in zip(state, saved, strict=False):
            array[:] = one.numpy()

    # -- private ----------------------------------------------------------------------------------------------

    def _add(self, some: Mapping[str, Tensor], name: str, **options: Any) -> None:
        tensors = Tensors(some)
        replica = Replica(tensors.arrays, name=name, **self._options, **options)
        replica.trust()
        tensors.write()
        self._replicas.append((replica, tensors))

    def _outer_state(self) -> list[Any]:
        return self._replicas[0][0].outer_state if self._replicas else []

    def _broadcast(self, some: Mapping[str, Tensor]) -> None:
        tensors, transport = Tensors(some), session.world().transport
        with transport.calling(self._name):
            for array in tensors.arrays().values():
                transport.broadcast(array)
        tensors.write()

    def _mean(self, some: Mapping[str, Tensor]) -> None:
        tensors, transport, call = Tensors(some), session.world().transport, f"{self._name}.finish"
        with transport.calling(call):
            session.world().notes.agree(transport, call, lambda: (True, {}))  # of the rows of all epochs
            consensus.mean(
                transport, list(tensors.arrays().values()), counts=self._has_stepped, check_finite=False, else_all=True
            )
        tensors.write()


class _Split:
    """The tensors of a model by what becomes of them. TypeError, ValueError: arguments are wrong."""

    def __init__(self, optimizer: Any, model: Any) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer must be one of torch.optim, got {type(optimizer).__name__}")
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self._optimizer, self._count = optimizer, _count(optimizer)
        trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
        named = dict(model.named_parameters())
        if strangers := len(trained - {id(one) for one in named.values()}):
            raise ValueError(
                f"the optimizer has {strangers} parameters that are not the model's: give a module that holds them, too"
            )
        self._frozen = {name: one for name, one in named.items() if id(one) in trained and not one.requires_grad}
        self.trained = {name: one for name, one in named.items() if id(one) in trained and one.requires_grad}
        """The parameters that are exchanged, by name, each once."""
        buffers = dict(model.named_buffers())
        self.buffers = {name: one for name, one in buffers.items() if one.is_floating_point()}
        """The buffers that are averaged."""
        self.left = {
            name: one for name, one in {**named, **buffers}.items() if name not in {**self.trained, **self.buffers}
        }
        """All other tensors, which are those of rank 0 at the start."""
        self._kinds = {name: _kind(one) for name, one in self.trained.items()}
        if not self.trained:
            raise ValueError("the optimizer has no parameter that is trained")
        Tensors({**named, **buffers})

    @property
    def described(self) -> list[str]:
        """Name, dtype and shape of each tensor, in words."""
        every = {**self.trained, **self.buffers, **self.left}
        return [f"{name}: {one.dtype}{list(one.shape)}" for name, one in every.items()]

    def check(self) -> None:
        """Check that what is trained is what is exchanged. ValueError: it is not."""
        if (count := _count(self._optimizer)) != self._count:
            raise ValueError(
                f"the optimizer had {self._count} parameters at the start and has {count} now: call add_param_group "
                "of malt.torch.Optimizer, or restart() on all ranks first"
            )
        for name, one in self.trained.items():
            if _kind(one) != self._kinds[name]:
                was, now = (" on ".join(map(str, kind)) for kind in (self._kinds[name], _kind(one)))
                raise ValueError(f"{name} was {was} at the start and is {now}: call restart() on all ranks first")
        for name, one in self._frozen.items():
            if one.requires_grad:
                raise ValueError(
                    f"{name} was frozen at the start and is trained now: call restart() on all ranks first"
                )


def _count(optimizer: torch.optim.Optimizer) -> int:
    """The number of parameters of an optimizer."""
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _kind(one: Tensor) -> tuple[torch.dtype, torch.device]:
    return one.dtype, one.device


def _check_gradients(every: Any, graph: Any, sync: Any, **changed: Any) -> None:
    """Check the arguments with average="gradient". ValueError: they do not go with it."""
    if arguments.whole("every", every, 1) != 1:
        raise ValueError('average="gradient" exchanges at every step: to exchange less often, call step less often')
    if graph not in ("auto", "all") or sync != "bsp":
        raise ValueError('average="gradient" is for graph="all" and sync="bsp": models would differ')
    for name in ("outer", "wire", "top"):
        if changed[name] is not None:
            raise ValueError(f'{name} is for changes: average="delta"')
    if changed["fragments"] != 1:
        raise ValueError('average="gradient" exchanges all at every step, without fragments')
